// fake_nvml.so while a test plants GPUs in it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "topology/host/fake_nvml.h"

namespace skein::topology {

inline constexpr uint64_t kGiB = uint64_t{1} << 30;

class PlantedNvml {
 public:
  static std::string Path(const std::string& kind = "nvml") {
    return "topology/host/fake_" + kind + ".so";
  }

  // GPUs of 80 GiB at "00000000:10:00.0", :11 and so on.
  explicit PlantedNvml(int gpus, const std::string& kind = "nvml")
      : handle_(dlopen(Path(kind).c_str(), RTLD_NOW)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
    fake_ = static_cast<FakeNvml*>(dlsym(handle_, "fake_nvml"));
    *fake_ = {.count = gpus};
    for (int i = 0; i < gpus; ++i) {
      fake_->gpus[i] = {.uuid = Keep(absl::StrCat("GPU-", i % 8, "abc0000-", i)),
                        .name = "NVIDIA Fake",
                        .bus_id = Keep(absl::StrCat("00000000:", 10 + i, ":00.0")),
                        .total = 80 * kGiB,
                        .free = 79 * kGiB};
    }
  }
  // It was shut down as often as it was started.
  ~PlantedNvml() {
    EXPECT_EQ(fake_->inits, fake_->ends + failed_inits);
    dlclose(handle_);
  }
  PlantedNvml(const PlantedNvml&) = delete;
  PlantedNvml& operator=(const PlantedNvml&) = delete;

  FakeNvml* operator->() { return fake_; }
  FakeGpu& operator[](int gpu) { return fake_->gpus[gpu]; }

  // `links` NVLinks of `gpu` to another, or to a switch.
  void Connect(int gpu, const std::string& remote, int links, bool to_switch, bool active = true) {
    FakeGpu& from = fake_->gpus[gpu];
    for (int i = 0; i < links; ++i) {
      from.link[from.links++] = {
          .active = active ? 1 : 0, .kind = to_switch ? 2 : 0, .remote = Keep(remote)};
    }
  }
  void ConnectBoth(int a, int b, int links) {
    Connect(a, fake_->gpus[b].bus_id, links, false);
    Connect(b, fake_->gpus[a].bus_id, links, false);
  }

  int failed_inits = 0;

 private:
  // What the library's pointers refer to.
  const char* Keep(const std::string& text) {
    kept_.push_back(std::make_unique<std::string>(text));
    return kept_.back()->c_str();
  }

  void* handle_;
  FakeNvml* fake_;
  std::vector<std::unique_ptr<std::string>> kept_;
};

}  // namespace skein::topology
