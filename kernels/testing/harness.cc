#include "kernels/testing/harness.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

#include "base/dtype.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace skein::kernels {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().ToString();
    std::abort();
  }
  return *std::move(result);
}

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  ADD_FAILURE() << status.ToString();
  std::abort();
}

std::vector<std::byte> Stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(DTypeBytes(dtype, static_cast<int64_t>(values.size())));
  ConvertFromFloat(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

}  // namespace

std::vector<BackendCase> CpuBackends() {
  std::vector<BackendCase> cases;
  for (const auto& [name, target] :
       {std::pair<const char*, int64_t>{"Avx2", HWY_AVX2}, {"Avx512", HWY_AVX3}, {"Best", 0}}) {
    if (target != 0 && (hwy::SupportedTargets() & target) == 0) continue;
    for (int threads : {1, 3}) {
      cases.push_back({"Cpu" + std::string(name) + "Threads" + std::to_string(threads),
                       [target = target, threads] {
                         return OrDie(MakeCpuBackend({.threads = threads, .simd_targets = target}));
                       }});
    }
  }
  return cases;
}

std::vector<BackendCase> AllBackends() {
  std::vector<BackendCase> cases = CpuBackends();
  cases.push_back({"Reference", MakeReferenceBackend});
  return cases;
}

std::vector<KvDTypeCase> KvDTypes() {
  return {{"F32", KvDType::kF32},
          {"BF16", KvDType::kBF16},
          {"F16", KvDType::kF16},
          {"Int8", KvDType::kInt8}};
}

std::vector<float> RandomFloats(uint32_t seed, int64_t count, float scale) {
  std::minstd_rand random(seed + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = (static_cast<float>(random() >> 7) * 0x1p-23f - 1.0f) * scale;
  }
  return values;
}

std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  const std::vector<std::byte> bytes = Stored(dtype, values);
  ConvertToFloat(dtype, bytes.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

Batch BatchOf(const std::vector<Chunk>& chunks) {
  Batch batch;
  for (const Chunk& chunk : chunks) {
    const auto slot = static_cast<int32_t>(batch.sequences.size());
    const auto rows = static_cast<int32_t>(chunk.token_ids.size());
    batch.updates.push_back({.slot = slot, .length = chunk.first_position, .pages = chunk.pages});
    batch.sequences.push_back({.slot = slot, .rows = rows, .outputs = rows});
    batch.token_ids.insert(batch.token_ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
  }
  return batch;
}

BufferId TestProgram::AddBuffer(int64_t cols, BufferSpec::Rows rows) {
  const auto id = static_cast<BufferId>(program.buffers.size());
  program.buffers.push_back({"b" + std::to_string(id), rows, cols, /*port=*/true});
  return id;
}

WeightId TestProgram::AddWeight(const WeightSpec& spec, std::vector<float> weight) {
  std::vector<std::byte> bytes;
  auto next = weight.begin();
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    const auto end = next + part.rows * spec.cols;
    const std::vector<std::byte> of_part = Stored(part.dtype, {next, end});
    bytes.insert(bytes.end(), of_part.begin(), of_part.end());
    next = end;
  }
  return AddStored(spec, std::move(bytes));
}

WeightId TestProgram::AddStored(const WeightSpec& spec, std::vector<std::byte> bytes) {
  const auto id = static_cast<WeightId>(program.weights.size());
  program.weights.push_back({"w" + std::to_string(id), spec});
  stored.push_back(std::move(bytes));
  return id;
}

WeightId TestProgram::AddVector(std::vector<float> vector) {
  const WeightSpec spec{.kind = WeightSpec::Kind::kVector,
                        .rows = 1,
                        .cols = static_cast<int64_t>(vector.size()),
                        .dtype = DType::kF32};
  return AddWeight(spec, std::move(vector));
}

absl::Status LoadRows(Weights& weights, const WeightRows& rows,
                      absl::Span<const std::byte> stored) {
  auto staged = OrDie(weights.Stage(static_cast<int64_t>(stored.size())));
  std::copy(stored.begin(), stored.end(), staged->bytes().begin());
  return weights.Load(rows, std::move(staged));
}

void TestProgram::Bind(Backend& backend) {
  executable.reset();
  kv.reset();
  weights = OrDie(backend.AllocateWeights(program));
  for (size_t i = 0; i < stored.size(); ++i) {
    const WeightSpec& spec = program.weights[i].spec;
    absl::Span<const std::byte> left = stored[i];
    int64_t row = 0;
    for (const WeightSpec::Part& part : PartsOf(spec)) {
      const auto bytes = static_cast<size_t>(DTypeBytes(part.dtype, part.rows * spec.cols));
      const WeightRows rows = {
          .weight = static_cast<WeightId>(i), .first = row, .count = part.rows};
      OrDie(LoadRows(*weights, rows, left.subspan(0, bytes)));
      left.remove_prefix(bytes);
      row += part.rows;
    }
  }
  OrDie(weights->FinishLoading());
  if (kv_spec.pages > 0) kv = OrDie(backend.AllocateKv(kv_spec));
  executable = OrDie(backend.Compile(
      program, limits, {.weights = weights.get(), .kv = kv.get(), .collectives = collectives}));
  OrDie(executable->WarmUp());
}

absl::Status TestProgram::Run(const Batch& batch) {
  executable->batch(0) = batch;
  return executable->Enqueue(0).status();
}

void TestProgram::Set(BufferId id, const std::vector<float>& numbers) {
  std::copy(numbers.begin(), numbers.end(), static_cast<float*>(executable->port(id, 0).data));
}

std::vector<float> TestProgram::Get(BufferId id, int64_t rows) const {
  const View view = executable->port(id, 0).First(rows);
  const auto* const first = static_cast<const float*>(view.data);
  return {first, first + view.elements()};
}

}  // namespace skein::kernels
