// A job on its machines, as a picture. Pure.
#pragma once

#include <string>

#include "parallel/plan/plan.h"
#include "topology/machine.h"

namespace skein::coordinator {

// topology::TopologySvg of the machine that the plan is for, with every rank that has a part where
// it runs, coloured by replica.
std::string PictureOf(const topology::Machine& machine, const plan::Plan& plan);

}  // namespace skein::coordinator
