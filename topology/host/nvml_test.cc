// What NVML is asked, over a library that pretends: no GPU is needed.
#include "topology/host/nvml.h"

#include <dlfcn.h>

#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/host/fake_nvml.h"

namespace skein::topology {
namespace {

using ::testing::HasSubstr;

constexpr char kDigits[] = "0123456789abcdef0123456789abcdef";
constexpr char kGpu[] = "GPU-01234567-89ab-cdef-0123-456789abcdef";
constexpr char kMig[] = "MIG-01234567-89ab-cdef-0123-456789abcdef";
constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string Fake(const std::string& kind) { return "topology/host/fake_" + kind + ".so"; }

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    handle_ = dlopen(Fake("nvml").c_str(), RTLD_NOW);
    ASSERT_NE(handle_, nullptr);
    fake_ = static_cast<FakeNvml*>(dlsym(handle_, "fake_nvml"));
    ASSERT_NE(fake_, nullptr);
    *fake_ = {};
    gpu() = {.uuid = kGpu, .total = 140 * kGiB, .free = 10 * kGiB};
  }
  void TearDown() override {
    EXPECT_EQ(fake_->inits, fake_->ends + (fake_->init_code == 0 ? 0 : 1));
    dlclose(handle_);
  }
  static absl::StatusOr<GpuState> Ask() { return AskNvml(kDigits, {Fake("nvml")}); }

  FakeGpu& gpu() { return fake_->gpus[0]; }

  void* handle_ = nullptr;
  FakeNvml* fake_ = nullptr;
};

TEST_F(NvmlTest, TellsWhoHasTheMemory) {
  gpu().processes = 3;
  SKEIN_ASSERT_OK_AND_ASSIGN(const GpuState state, Ask());
  EXPECT_EQ(state.uuid, kGpu);
  EXPECT_FALSE(state.mig);
  ASSERT_EQ(state.processes.size(), 3u);
  EXPECT_EQ(state.processes[0].pid, 102);
  EXPECT_EQ(state.processes[0].bytes, int64_t{2} << 30);
  EXPECT_EQ(state.processes[2].bytes, 0);
  EXPECT_EQ(FormatGpuUsers(state),
            "10.00 GiB of 140.00 GiB are free; train102 (pid 102) has 2.00 GiB, train101 (pid 101) "
            "has 1.00 GiB, a process (pid 100)");
}

TEST_F(NvmlTest, ManyProcessesAreCounted) {
  gpu().processes = 100;  // more than are asked for at first
  SKEIN_ASSERT_OK_AND_ASSIGN(const GpuState state, Ask());
  EXPECT_EQ(state.processes.size(), 100u);
  EXPECT_EQ(state.processes.front().bytes, int64_t{99} << 30);
  EXPECT_THAT(FormatGpuUsers(state), HasSubstr("train195 (pid 195) has 95.00 GiB, 95 more"));
  EXPECT_THAT(FormatGpuUsers({.free_bytes = 1, .total_bytes = 2}),
              HasSubstr("NVML names no process on it"));
}

TEST_F(NvmlTest, ASliceIsKnownByItsUuid) {
  gpu().uuid = kMig;
  SKEIN_ASSERT_OK_AND_ASSIGN(const GpuState state, Ask());
  EXPECT_TRUE(state.mig);
  EXPECT_EQ(state.uuid, kMig);
}

TEST_F(NvmlTest, WhatCannotBeAskedIsSaid) {
  gpu().uuid = "GPU-another";
  EXPECT_THAT(Ask().status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(kMig)));
  gpu().uuid = kGpu;
  gpu().memory_code = 15;
  EXPECT_THAT(Ask().status(),
              StatusIs(absl::StatusCode::kUnavailable, "NVML: memory: GPU is lost"));
  fake_->init_code = 9;
  EXPECT_THAT(Ask().status(),
              StatusIs(absl::StatusCode::kUnavailable, "NVML: nvmlInit: Driver Not Loaded"));
}

TEST(AskNvmlTest, ALibraryThatIsMissingOrOldIsSaid) {
  EXPECT_THAT(AskNvml(kDigits, {"libskein_absent.so.1"}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("there is no NVML: ")));
  EXPECT_THAT(AskNvml(kDigits, {Fake("lacking_nvml")}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("too old")));
  // One without lists of processes still tells of memory.
  void* const old = dlopen(Fake("old_nvml").c_str(), RTLD_NOW);
  ASSERT_NE(old, nullptr);
  auto* const fake = static_cast<FakeNvml*>(dlsym(old, "fake_nvml"));
  fake->gpus[0] = {.uuid = kGpu, .total = 2, .free = 1};
  SKEIN_ASSERT_OK_AND_ASSIGN(const GpuState gpu, AskNvml(kDigits, {Fake("old_nvml")}));
  EXPECT_EQ(gpu.free_bytes, 1);
  EXPECT_TRUE(gpu.processes.empty());
  dlclose(old);
}

}  // namespace
}  // namespace skein::topology
