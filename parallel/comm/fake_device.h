// For tests: a device that comes to the points of its streams when it is told to, and a transport
// that notes what it is given.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_events.h"
#include "parallel/comm/device_transport.h"

namespace skein::comm {

class FakeEvents final : public DeviceEvents {
 public:
  absl::Status Select() override {
    ++selected;
    return absl::OkStatus();
  }
  absl::StatusOr<int> Record(Stream) override { return recorded++; }
  absl::StatusOr<bool> Done(int event) override {
    ++asked;
    while (silent) absl::SleepFor(absl::Milliseconds(1));
    if (broken) return absl::InternalError("the device is broken");
    return event < reached;
  }

  std::atomic<int> selected = 0;
  std::atomic<int> recorded = 0;
  std::atomic<int> reached = 0;  // points, in their order
  std::atomic<bool> broken = false;
  std::atomic<int> asked = 0;
  std::atomic<bool> silent = false;  // Done does not return
};

class FakeTransport final : public DeviceTransport {
 public:
  absl::Status BeginStep(int64_t step, uint32_t order, Stream) override {
    steps.emplace_back(step, order);
    return absl::OkStatus();
  }
  absl::Status AllReduce(const Call& call, View, Stream, const Patience&) override {
    return Note(call);
  }
  absl::Status Send(const Call& call, ConstView, Stream, const Patience&) override {
    return Note(call);
  }
  absl::Status Receive(const Call& call, View, Stream, const Patience&) override {
    return Note(call);
  }
  absl::Status Check() override { return state; }
  std::string Others(const Call& call) const override {
    return IsMessage(call.operation) ? "rank 7 on c" : "rank 7 on c, rank 8 on d";
  }
  bool SumsAsTree() const override { return false; }
  void Abort() override { ++aborts; }

  std::vector<std::pair<int64_t, uint32_t>> steps;  // that began, with their orders
  std::vector<Call> given;
  absl::Status state;
  std::atomic<int> aborts = 0;

 private:
  absl::Status Note(const Call& call) {
    given.push_back(call);
    return absl::OkStatus();
  }
};

}  // namespace skein::comm
