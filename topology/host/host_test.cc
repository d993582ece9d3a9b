#include "topology/host/host.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kMemInfo[] = "MemTotal:       24684096 kB\nMemAvailable:   10240 kB\n";  // 10 MiB

using Files = std::map<std::string, std::string>;  // path to contents

// A file system with the given files and /proc/meminfo, in a folder that ends with the object.
class FakeRoot {
 public:
  explicit FakeRoot(Files files) : path_(testing::TempDir() + "/host_test_root") {
    std::filesystem::remove_all(path_);
    files.try_emplace("/proc/meminfo", kMemInfo);
    for (const auto& [name, contents] : files) {
      const std::filesystem::path file = path_ + name;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << contents;
    }
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  Device Cpu() const { return DescribeCpu({path_, {}}); }
  absl::StatusOr<Node> Describe(int32_t affinity_cores = 8) const {
    return DescribeHost({path_, affinity_cores});
  }

 private:
  std::string path_;
};

constexpr char kV2Mount[] =
    "23 1 0:21 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
constexpr char kV1Mounts[] =
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "38 31 0:41 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
constexpr char kV1Cgroup[] = "4:memory:/job/a\n3:cpuset:/\n2:cpu,cpuacct:/job\n0::/\n";

struct Case {
  const char* name;
  Files files;
  int32_t cores;
  int64_t memory_bytes;
};

void ExpectAll(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Node node, FakeRoot(c.files).Describe());
    EXPECT_EQ(node.cores, c.cores);
    EXPECT_EQ(node.memory_bytes, c.memory_bytes);
  }
}

TEST(DescribeHost, ReadsVersion2) {
  const auto with = [](Files files) {
    files["/proc/self/mountinfo"] = kV2Mount;
    files.try_emplace("/proc/self/cgroup", "0::/user/job\n");
    return files;
  };
  const std::string top = "/sys/fs/cgroup", user = top + "/user", job = user + "/job";
  ExpectAll({
      {"no cgroup files at all", {}, 8, 10 * kMiB},
      {"no limits", with({{job + "/memory.max", "max\n"}, {job + "/cpu.max", "max 100000\n"}}), 8,
       10 * kMiB},
      {"limit less usage",
       with({{job + "/memory.max", "8388608\n"}, {job + "/memory.current", "3145728\n"}}), 8,
       5 * kMiB},
      {"page cache is not usage",
       with({{job + "/memory.max", "8388608\n"},
             {job + "/memory.current", "8388608\n"},
             {job + "/memory.stat", "anon 1048576\ninactive_file 4194304\nactive_file 3145728\n"}}),
       8, 7 * kMiB},
      {"more cache than usage, read a moment later",
       with({{job + "/memory.max", "8388608\n"},
             {job + "/memory.current", "1048576\n"},
             {job + "/memory.stat", "inactive_file 2097152\n"}}),
       8, 8 * kMiB},
      {"usage above a lowered limit",
       with({{job + "/memory.max", "1048576\n"}, {job + "/memory.current", "3145728\n"}}), 8, 0},
      {"a limit further up",
       with({{job + "/memory.max", "8388608\n"},
             {job + "/memory.current", "0\n"},
             {user + "/memory.max", "8388608\n"},
             {user + "/memory.current", "6291456\n"}}),
       8, 2 * kMiB},
      {"a limit at the mount point, as in a container",
       with({{"/proc/self/cgroup", "0::/\n"},
             {top + "/memory.max", "4194304\n"},
             {top + "/memory.current", "1048576\n"}}),
       8, 3 * kMiB},
      {"a path that cannot be seen",
       with({{"/proc/self/cgroup", "0::/../other\n"},
             {top + "/memory.max", "4194304\n"},
             {top + "/memory.current", "0\n"}}),
       8, 4 * kMiB},
      {"a limit above what is free",
       with({{job + "/memory.max", "1099511627776\n"}, {job + "/memory.current", "0\n"}}), 8,
       10 * kMiB},
      {"quota of two and a half CPUs", with({{job + "/cpu.max", "250000 100000\n"}}), 2, 10 * kMiB},
      {"quota of half a CPU", with({{job + "/cpu.max", "50000 100000\n"}}), 1, 10 * kMiB},
      {"quota above the affinity", with({{job + "/cpu.max", "6400000 100000\n"}}), 8, 10 * kMiB},
      {"quota further up",
       with({{job + "/cpu.max", "max 100000\n"}, {user + "/cpu.max", "300000 100000\n"}}), 3,
       10 * kMiB},
      {"rubbish sets no limit",
       with({{job + "/cpu.max", "many\n"},
             {job + "/memory.max", "some\n"},
             {job + "/memory.current", ""},
             {job + "/memory.stat", "inactive_file\n"}}),
       8, 10 * kMiB},
  });
}

TEST(DescribeHost, ReadsVersion1) {
  const auto with = [](Files files) {
    files.try_emplace("/proc/self/mountinfo", kV1Mounts);
    files.try_emplace("/proc/self/cgroup", kV1Cgroup);
    return files;
  };
  const std::string memory = "/sys/fs/cgroup/memory", cpu = "/sys/fs/cgroup/cpu,cpuacct";
  const Files unlimited = {{memory + "/job/a/memory.limit_in_bytes", "9223372036854771712\n"},
                           {memory + "/job/a/memory.usage_in_bytes", "260730880\n"},
                           {cpu + "/job/cpu.cfs_quota_us", "-1\n"},
                           {cpu + "/job/cpu.cfs_period_us", "100000\n"}};
  ExpectAll({
      {"no limits", with(unlimited), 8, 10 * kMiB},
      {"limit less usage, page cache aside",
       with({{memory + "/job/a/memory.limit_in_bytes", "8388608\n"},
             {memory + "/job/a/memory.usage_in_bytes", "6291456\n"},
             {memory + "/job/a/memory.stat",
              "inactive_file 5\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n"}}),
       8, 5 * kMiB},
      {"a limit further up",
       with({{memory + "/job/memory.limit_in_bytes", "4194304\n"},
             {memory + "/job/memory.usage_in_bytes", "3145728\n"},
             {memory + "/job/a/memory.limit_in_bytes", "9223372036854771712\n"},
             {memory + "/job/a/memory.usage_in_bytes", "0\n"}}),
       8, 1 * kMiB},
      {"a path that begins with the mount's root, as in a container",
       with({{"/proc/self/mountinfo",
              "35 31 0:32 /docker/c0 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
             {"/proc/self/cgroup", "4:memory:/docker/c0/inner\n"},
             {memory + "/inner/memory.limit_in_bytes", "2097152\n"},
             {memory + "/inner/memory.usage_in_bytes", "0\n"}}),
       8, 2 * kMiB},
      {"quota of three CPUs",
       with({{cpu + "/job/cpu.cfs_quota_us", "150000\n"},
             {cpu + "/job/cpu.cfs_period_us", "50000\n"}}),
       3, 10 * kMiB},
  });
}

TEST(DescribeHost, NeedsMemAvailable) {
  for (const char* text : {"", "MemTotal: 5 kB\n", "MemAvailable: x kB\n", "MemAvailable: -5 kB\n",
                           "MemAvailable: 9223372036854775807 kB\n"}) {
    EXPECT_THAT(FakeRoot(Files{{"/proc/meminfo", text}}).Describe().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("MemAvailable")))
        << text;
  }
}

TEST(DescribeCpu, IsNamedByItsMaker) {
  const std::string two =
      "processor\t: 0\nmodel name\t: Fast CPU 9000 @ 3 GHz \nflags\t: avx2\n\n"
      "processor\t: 1\nmodel name\t: another\n";
  EXPECT_EQ(FakeRoot(Files{{"/proc/cpuinfo", two}}).Cpu(), Device{.name = "Fast CPU 9000 @ 3 GHz"});
  for (const char* text : {"", "model name", "model name\t:\n", "processor : 0\n"}) {
    EXPECT_EQ(FakeRoot(Files{{"/proc/cpuinfo", text}}).Cpu(), Device{.name = "CPU"}) << text;
  }
  EXPECT_EQ(FakeRoot({}).Cpu().name, "CPU");
  EXPECT_NE(DescribeCpu().name, "");
}

TEST(DescribeHost, DescribesThisHost) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Node node, DescribeHost());
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(node.host, name);
  EXPECT_GE(node.cores, 1);
  EXPECT_LE(node.cores, sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GT(node.memory_bytes, 0);
  EXPECT_LE(node.memory_bytes, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE));
}

}  // namespace
}  // namespace skein::topology
