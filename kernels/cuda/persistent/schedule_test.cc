#include "kernels/cuda/persistent/schedule.h"
