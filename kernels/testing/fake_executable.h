// An executable without a Program: a test says what a batch does.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "kernels/ops/backend.h"

namespace skein::kernels {

// Runs batches as they are enqueued, on the calling thread.
class FakeExecutable : public Executable {
 public:
  absl::Status WarmUp() override { return absl::OkStatus(); }
  Batch& batch(int i) override { return batches_[i]; }
  absl::StatusOr<Ticket> Enqueue(int i) override {
    results_[i] = {};
    if (absl::Status status = Run(i, batches_[i], results_[i]); !status.ok()) return status;
    for (const SampledTokens& row : results_[i].sampled) {
      newest_[row.slot] = row.tokens.back().id;
    }
    return ++tickets_;
  }
  absl::StatusOr<bool> Wait(Ticket, Stream, absl::Time) override { return true; }
  void After(int, Stream) override {}
  const BatchResult& result(int i) const override { return results_[i]; }
  void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) override {
    for (size_t i = 0; i < slots.size(); ++i) newest_[slots[i]] = tokens[i];
  }
  void SetMask(int, int32_t, absl::Span<const uint32_t>) override {}
  void Abort(const absl::Status&) override {}

  int32_t newest(int32_t slot) const { return newest_.at(slot); }

 protected:
  virtual absl::Status Run(int i, const Batch& batch, BatchResult& result) = 0;

 private:
  std::array<Batch, kBatches> batches_;
  std::array<BatchResult, kBatches> results_;
  std::map<int32_t, int32_t> newest_;  // by slot
  Ticket tickets_ = 0;
};

}  // namespace skein::kernels
