// What `skein top` shows, as lines. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"

namespace skein::client {

std::string Span(absl::Duration time);  // "1m20s", in whole seconds

struct ScreenOptions {
  int columns = 80;
  int rows = 0;  // lines at most; 0: all of them
  bool colours = false;
};

// `lost`: why the coordinator is not reached, and since when; "": it is. Lines have no line feeds
// and are no wider than the screen; names are made printable. What does not fit is counted in the
// last line.
std::vector<std::string> Screen(const cluster::v1::ClusterStatus& status, const std::string& lost,
                                const ScreenOptions& options);

}  // namespace skein::client
