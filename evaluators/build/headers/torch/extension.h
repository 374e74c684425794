#pragma once
#include "warpsmith/dispatch.h"
#include "warpsmith/module.h"
namespace py = pybind11;
