#pragma once
#include "warpsmith/accessor.h"
#include "warpsmith/dispatch.h"
#include "warpsmith/module.h"
#include "warpsmith/operators.h"
#include "warpsmith/parallel.h"
