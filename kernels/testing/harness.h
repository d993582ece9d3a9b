// Serves tests of back ends: lists the back ends there are, and builds Programs of numbers, and
// batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

struct BackendCase {
  std::string name;  // a test's suffix
  std::function<std::unique_ptr<Backend>()> make;
};

// Returns the CPU's back ends on every instruction set that this machine has (and on what each
// chooses by itself), with 1 and 3 threads.
std::vector<BackendCase> CpuBackends();
// Returns these and the reference.
std::vector<BackendCase> AllBackends();

struct KvDTypeCase {
  std::string name;
  KvDType dtype;
};
std::vector<KvDTypeCase> KvDTypes();

// Returns `count` reproducible numbers, uniform in [-scale, scale).
std::vector<float> RandomFloats(uint32_t seed, int64_t count, float scale = 1.0f);
// Returns the numbers as `dtype` keeps them.
std::vector<float> Rounded(std::vector<float> values, DType dtype);

// A piece of a sequence in a batch.
struct Chunk {
  std::vector<int32_t> pages;      // the sequence's, enough for all of its rows so far
  int32_t first_position = 0;      // of the tokens
  std::vector<int32_t> token_ids;  // of the rows
};

// Makes a batch of these, in slots 0, 1, 2 ..., each with its length and pages; every row is an
// output.
Batch BatchOf(const std::vector<Chunk>& chunks);

// Loads `stored` bytes as these rows.
absl::Status LoadRows(Weights& weights, const WeightRows& rows, absl::Span<const std::byte> stored);

// A Program under construction with its weights' values, then bound to a back end. Fails the test
// (by a fatal check) when a back end refuses it.
class TestProgram {
 public:
  BufferId AddBuffer(int64_t cols, BufferSpec::Rows rows = BufferSpec::Rows::kTokens);
  // values [spec.rows, spec.cols] are rounded to the spec's dtypes as they are packed.
  WeightId AddWeight(const WeightSpec& spec, std::vector<float> values);
  // stored holds the rows of the parts as they are in files, one part behind the other.
  WeightId AddStored(const WeightSpec& spec, std::vector<std::byte> stored);
  WeightId AddVector(std::vector<float> values);
  void Add(Op op) { program.ops.push_back(op); }

  // Makes a new executable; weights and cache are kept until the next call.
  void Bind(Backend& backend);
  void Set(BufferId id, const std::vector<float>& values);
  std::vector<float> Get(BufferId id, int64_t rows) const;
  // Runs it as the executable's batch 0.
  absl::Status Run(const Batch& batch);

  Program program;
  Limits limits{.rows = 80, .outputs = 80, .slots = 16, .slot_pages = 256};
  KvSpec kv_spec;  // no cache while pages is 0
  Collectives* collectives = nullptr;
  std::vector<std::vector<std::byte>> stored;  // [weights]
  std::unique_ptr<Weights> weights;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<Executable> executable;
};

}  // namespace skein::kernels
