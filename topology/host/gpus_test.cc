// What NVML tells of GPUs, over a library that pretends: no GPU is needed.
#include "topology/host/gpus.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/host/planted_nvml.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

absl::StatusOr<FoundGpus> Find(const std::optional<std::string>& visible = std::nullopt,
                               const std::string& kind = "nvml") {
  return FindGpus(visible, {PlantedNvml::Path(kind)});
}

using Numbers = std::vector<std::vector<int32_t>>;

TEST(FindGpus, TellsWhatTheyAre) {
  PlantedNvml nvml(2);
  nvml[1].name = "NVIDIA \033Other";
  nvml[1].bus_id = "00010001:AF:00.0";
  nvml[1].total = 24 * kGiB;
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus found, Find());
  ASSERT_EQ(found.gpus.size(), 2u);
  EXPECT_EQ(found.gpus[0],
            (Gpu{"GPU0", "NVIDIA Fake", "0000:10:00.0", static_cast<int64_t>(80 * kGiB)}));
  EXPECT_EQ(found.gpus[1],
            (Gpu{"GPU1", "NVIDIA \\x1bOther", "10001:af:00.0", static_cast<int64_t>(24 * kGiB)}));
  EXPECT_EQ(found.health[1].uuid, nvml[1].uuid);
  EXPECT_EQ(found.health[1].free_bytes, static_cast<int64_t>(79 * kGiB));
}

TEST(FindGpus, ThroughSwitchesEachTwoAreConnectedByAllTheirLinks) {
  PlantedNvml nvml(4);
  for (int gpu = 0; gpu < 4; ++gpu) {
    for (const char* const to : {"00000000:C1:00.0", "00000000:C2:00.0", "00000000:C3:00.0"}) {
      nvml.Connect(gpu, to, 6, /*to_switch=*/true);
    }
  }
  nvml[3].link[4].active = 0;
  SKEIN_ASSERT_OK_AND_ASSIGN(FoundGpus found, Find());
  EXPECT_EQ(found.nvlinks,
            Numbers({{0, 18, 18, 17}, {18, 0, 18, 17}, {18, 18, 0, 17}, {17, 17, 17, 0}}));
  EXPECT_EQ(found.nvswitches, 3);
  EXPECT_EQ(found.health[0].nvlinks_up, 18);
  EXPECT_EQ(found.health[0].nvlinks_down, 0);
  EXPECT_EQ(found.health[3].nvlinks_up, 17);
  EXPECT_EQ(found.health[3].nvlinks_down, 1);
  // A virtual machine is not told which switches these are.
  for (int gpu = 0; gpu < 4; ++gpu) {
    for (int link = 0; link < 18; ++link) {
      nvml[gpu].link[link].remote =
          std::vector<const char*>{"", "FFFFFFFF:FF:FF.0", "00000000:00:00.0", "garbled"}[link % 4];
    }
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(found, Find());
  EXPECT_EQ(found.nvlinks[0][1], 18);
  EXPECT_EQ(found.nvswitches, 0);
}

// As a DGX-1V: each GPU has six links, doubled to some, none to three others.
TEST(FindGpus, StraightLinksLeadToOneGpu) {
  PlantedNvml nvml(8);
  const struct {
    int a, b, links;
  } pairs[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
               {1, 5, 2}, {2, 3, 1}, {2, 6, 2}, {3, 7, 2}, {4, 5, 1}, {4, 6, 1},
               {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 1}};
  Numbers expected(8, std::vector<int32_t>(8, 0));
  for (const auto& pair : pairs) {
    nvml.ConnectBoth(pair.a, pair.b, pair.links);
    expected[pair.a][pair.b] = expected[pair.b][pair.a] = pair.links;
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(FoundGpus found, Find());
  EXPECT_EQ(found.nvlinks, expected);
  EXPECT_EQ(found.nvswitches, 0);
  for (const GpuHealth& health : found.health) EXPECT_EQ(health.nvlinks_up, 6);
  // In another order, and without the others.
  SKEIN_ASSERT_OK_AND_ASSIGN(found, Find("4,7,0"));
  EXPECT_EQ(found.nvlinks, Numbers({{0, 2, 2}, {2, 0, 0}, {2, 0, 0}}));
  // A link of which one end has failed carries nothing; one to a processor leads to no GPU.
  nvml[7].link[0].active = 0;  // of 3
  nvml[0].link[0].kind = 1;
  nvml[0].link[0].remote = "00000004:00:00.0";  // of 1
  SKEIN_ASSERT_OK_AND_ASSIGN(found, Find());
  EXPECT_EQ(found.nvlinks[3][7], 1);
  EXPECT_EQ(found.nvlinks[7][3], 1);
  EXPECT_EQ(found.nvlinks[0][1], 0);
}

TEST(FindGpus, WithoutNvlinksThePathsOfPcieAreTold) {
  PlantedNvml nvml(7);
  const int levels[] = {0, 0, 10, 20, 30, 40, 50};
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 7; ++j) nvml[i].ancestor[j] = i == 0 ? levels[j] : j == 0 ? levels[i] : 99;
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus found, Find());
  EXPECT_EQ(found.nvlinks, Numbers(7, std::vector<int32_t>(7, 0)));
  EXPECT_THAT(found.parents[0],
              ElementsAre(std::nullopt, Optional(Path::kSwitch), Optional(Path::kSwitch),
                          Optional(Path::kSwitches), Optional(Path::kBridge), Optional(Path::kNode),
                          Optional(Path::kSystem)));
  EXPECT_EQ(found.parents[5][0], Path::kNode);
  EXPECT_EQ(found.parents[5][4], std::nullopt);
}

TEST(FindGpus, TellsHowTheyAre) {
  PlantedNvml nvml(3);
  nvml[1] = {.uuid = nvml[1].uuid,
             .bus_id = nvml[1].bus_id,
             .processes = 2,
             .ecc = 1,
             .corrected = 9,
             .errors_since_boot = 3,
             .errors_ever = 7,
             .clock = 345,
             .max_clock = 1980,
             .reasons = 0x1 | 0x4 | 0x40 | 0x8000};
  nvml[2].ecc = 0;
  nvml[2].reasons = 0x1;  // it idles
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus found, Find());
  const GpuHealth& ill = found.health[1];
  EXPECT_THAT(ill.ecc, Optional(true));
  EXPECT_THAT(ill.errors_since_boot, Optional(3));
  EXPECT_THAT(ill.errors_ever, Optional(7));
  EXPECT_EQ(ill.clock_mhz, 345);
  EXPECT_EQ(ill.most_clock_mhz, 1980);
  EXPECT_THAT(ill.slowed_by, ElementsAre("its power limit", "heat (hardware)"));
  ASSERT_EQ(ill.processes.size(), 2u);
  EXPECT_EQ(ill.processes[0].name, "train101");
  EXPECT_FALSE(ill.mig);
  EXPECT_EQ(found.health[0].ecc, std::nullopt);
  EXPECT_EQ(found.health[0].errors_ever, std::nullopt);
  EXPECT_THAT(found.health[2].ecc, Optional(false));
  EXPECT_THAT(found.health[2].slowed_by, IsEmpty());
}

TEST(FindGpus, OneInSlicesHasNoNvlinks) {
  PlantedNvml nvml(3);
  for (int gpu = 0; gpu < 3; ++gpu) nvml.Connect(gpu, "00000000:C1:00.0", 4, true);
  nvml[0].mig = 0;
  nvml[1].mig = 1;
  SKEIN_ASSERT_OK_AND_ASSIGN(FoundGpus found, Find());
  EXPECT_EQ(found.nvlinks, Numbers({{0, 0, 4}, {0, 0, 0}, {4, 0, 0}}));
  EXPECT_FALSE(found.health[0].mig);
  EXPECT_TRUE(found.health[1].mig);
  EXPECT_EQ(found.health[1].nvlinks_up, 0);
  // A slice has its own memory, and the rest from its GPU.
  nvml[9] = {.uuid = "MIG-1234",
             .name = "NVIDIA Fake MIG 1g.10gb",
             .total = 10 * kGiB,
             .free = 9 * kGiB,
             .slice_of = 1};
  nvml[1].max_clock = 1410;
  SKEIN_ASSERT_OK_AND_ASSIGN(found, Find("MIG-1234,MIG-5678"));
  ASSERT_EQ(found.gpus.size(), 1u);
  EXPECT_EQ(found.gpus[0], (Gpu{"GPU0", "NVIDIA Fake MIG 1g.10gb", "0000:11:00.0",
                                static_cast<int64_t>(10 * kGiB)}));
  EXPECT_EQ(found.health[0].uuid, "MIG-1234");
  EXPECT_EQ(found.health[0].index, 1);
  EXPECT_TRUE(found.health[0].mig);
  EXPECT_EQ(found.health[0].most_clock_mhz, 1410);
  SKEIN_ASSERT_OK_AND_ASSIGN(found, Find("MIG-5678"));
  EXPECT_THAT(found.gpus, IsEmpty());
}

TEST(FindGpus, KeepsToThoseThatAreVisible) {
  PlantedNvml nvml(4);
  const auto indices = [](const std::string& value) {
    const auto found = Find(value);
    SKEIN_EXPECT_OK(found);
    std::vector<int32_t> visible;
    for (size_t i = 0; found.ok() && i < found->health.size(); ++i) {
      visible.push_back(found->health[i].index);
      EXPECT_EQ(found->gpus[i].name, absl::StrCat("GPU", i));
      EXPECT_EQ(found->gpus[i].bus_id, absl::StrCat("0000:", 10 + visible.back(), ":00.0"));
    }
    return visible;
  };
  EXPECT_THAT(indices("3,1"), ElementsAre(3, 1));
  EXPECT_THAT(indices("2,7,0"), ElementsAre(2));
  EXPECT_THAT(indices(absl::StrCat(nvml[2].uuid, ",", nvml[0].uuid)), ElementsAre(2, 0));
  EXPECT_THAT(indices("GPU-3,GPU-1"), ElementsAre(3, 1));
  // One that the process may not use has no number.
  nvml[0].index_code = 4;
  EXPECT_THAT(indices("0,2"), ElementsAre(1, 3));
}

TEST(FindGpus, SaysWhatCannotBeAsked) {
  PlantedNvml nvml(3);
  nvml[1].index_code = 15;
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kUnavailable, "NVML: GPU 1: GPU is lost"));
  SKEIN_EXPECT_OK(Find("0,2"));  // it is not wanted
  nvml[1].index_code = 0;
  nvml[2].memory_code = 15;
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kUnavailable, "NVML: GPU 2: memory: GPU is lost"));
  nvml[2].memory_code = 3;  // it has none of its own
  nvml[2].total = 5;
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus found, Find());
  EXPECT_EQ(found.gpus[2].memory_bytes, 0);
  nvml->count = 65;
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("65 GPUs")));
  nvml->init_code = 9;
  nvml.failed_inits = 1;
  EXPECT_THAT(Find(),
              StatusIs(absl::StatusCode::kUnavailable, "NVML: nvmlInit: Driver Not Loaded"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus none, Find(" "));  // no driver is asked
  EXPECT_THAT(none.gpus, IsEmpty());
}

TEST(FindGpus, WithoutALibraryThereAreNone) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const FoundGpus none,
                             FindGpus(std::nullopt, {"libskein_absent.so.1"}));
  EXPECT_THAT(none.gpus, IsEmpty());
  EXPECT_THAT(Find(std::nullopt, "lacking_nvml"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("too old")));
  EXPECT_THAT(Find(std::nullopt, "old_nvml"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("install driver 470")));
}

}  // namespace
}  // namespace skein::topology
