#include "topology/figures/figures_key.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace skein::topology {
namespace {

// Whatever the figures depend on makes another key.
TEST(FiguresKeyTest, SaysAllThatFiguresDependOn) {
  Host host = {.name = "a", .cpu = "a CPU", .cores = 8};
  host.interconnect.gpus = {{.model = "a card", .bus_id = "0000:01:00.0"},
                            {.model = "a card", .bus_id = "0000:02:00.0"}};
  host.interconnect.connections = {{{}, {Path::kNvlink, 18}}, {{Path::kNvlink, 18}, {}}};
  FiguresOf of = {.version = "1",
                  .edition = 2,
                  .host = &host,
                  .kernel = "6.1",
                  .driver = "580",
                  .local_ranks = 2,
                  .ranks = 4,
                  .hosts = {"a", "a", "b", "b"},
                  .nics = {{.name = "eth0", .bus_id = "0000:02:00.0", .bytes_per_s = 1e9}},
                  .networks = "eth0"};
  std::set<std::string> keys = {FiguresKey(of)};
  const auto other = [&](const std::function<void()>& change) {
    const FiguresOf before = of;
    const Host host_before = host;
    change();
    EXPECT_TRUE(keys.insert(FiguresKey(of)).second) << FiguresKey(of);
    of = before;
    host = host_before;
    EXPECT_TRUE(keys.contains(FiguresKey(of)));
  };
  other([&] { of.version = "1.1"; });
  other([&] { of.edition = 3; });
  other([&] { host.name = "c"; });
  other([&] { host.cpu = "another CPU"; });
  other([&] { host.cores = 4; });
  other([&] { host.interconnect.gpus[0].model = "another card"; });
  other([&] { host.interconnect.gpus[0].bus_id = "0000:03:00.0"; });
  other([&] { host.interconnect.gpus.pop_back(); });
  other([&] { host.interconnect.connections[1][0].nvlinks = 17; });
  other([&] { of.kernel = "6.2"; });
  other([&] { of.driver = "581"; });
  other([&] { of.local_ranks = 1; });
  other([&] { of.ranks = 3; });
  other([&] { of.device_comm = "host"; });
  other([&] { of.hosts = {"a", "a", "c", "c"}; });
  other([&] { of.nics[0].bytes_per_s = 1e10; });
  other([&] { of.nics[0].bus_id = "0000:04:00.0"; });
  other([&] { of.nics.clear(); });
  other([&] { of.networks = "eth1"; });
}

TEST(FiguresKeyTest, OfOneHostTheWayToOthersDoesNotCount) {
  const Host host = {.name = "a", .cores = 8};
  FiguresOf of = {.host = &host, .ranks = 2, .hosts = {"a", "a"}};
  const std::string key = FiguresKey(of);
  of.nics = {{.name = "eth0"}};
  of.networks = "eth0";
  EXPECT_EQ(FiguresKey(of), key);
}

}  // namespace
}  // namespace skein::topology
