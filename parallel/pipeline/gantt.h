// A timeline as a picture. Pure and deterministic; any thread.
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline/simulate.h"

namespace skein::schedule {

// A stand-alone SVG: a row for each stage, its idle time grey, a box for each interval, coloured by
// step, with the micro-batch's number where there is room and the times as a tooltip; below, an
// axis in milliseconds. Above: `title` (UTF-8, may be empty) and the bubble fraction. Light or
// dark as the viewer asks.
std::string GanttSvg(const Timeline& timeline, std::string_view title);

}  // namespace skein::schedule
