#pragma once
#include "warpsmith/parallel.h"
