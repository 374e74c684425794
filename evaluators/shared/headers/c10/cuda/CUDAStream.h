#pragma once
#include "warpsmith/stream.h"
