// A real model answers on a GPU as it does on the CPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/ops/sizes.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "model/format/tensor_source.h"
#include "tests/engine/local_replica.h"
#include "tests/engine/tie_gap.h"

namespace skein::worker {
namespace {

constexpr const char* kBard = "checkpoints/bard";

// A model of BF16 as one of F16.
class F16Tensors final : public model::TensorSource {
 public:
  explicit F16Tensors(const model::TensorSource& bf16) : bf16_(bf16) {
    for (model::TensorInfo tensor : bf16.tensors()) {
      tensor.dtype = DType::kF16;
      tensors_.push_back(tensor);
    }
  }
  std::string_view description() const override { return bf16_.description(); }
  absl::Span<const model::TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const model::TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* stored, bf16_.Find(tensor.name));
    SKEIN_RETURN_IF_ERROR(bf16_.Read(*stored, slice, out));
    const auto count = static_cast<int64_t>(out.size() / 2);
    std::vector<float> values(count);
    ConvertToFloat(DType::kBF16, out.data(), count, values.data());
    ConvertFromFloat(DType::kF16, values.data(), count, out.data());
    return absl::OkStatus();
  }

 private:
  const model::TensorSource& bf16_;
  std::vector<model::TensorInfo> tensors_;
};

// A model with the vectors besides that `config` has: biases, and gains of queries and keys, random
// ones.
class WithVectors final : public model::TensorSource {
 public:
  WithVectors(const model::TensorSource& model, const model::ModelConfig& config) : model_(model) {
    tensors_.assign(model.tensors().begin(), model.tensors().end());
    for (model::NamedShape& tensor : model::TensorsOf(config)) {
      if (model.Find(tensor.name).ok()) continue;
      tensors_.push_back({std::move(tensor.name), DType::kF32, std::move(tensor.shape)});
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  std::string_view description() const override { return model_.description(); }
  absl::Span<const model::TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const model::TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const absl::StatusOr<const model::TensorInfo*> stored = model_.Find(tensor.name);
    if (stored.ok()) return model_.Read(**stored, slice, out);
    const bool bias = tensor.name.ends_with("bias");
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(tensor.name)));
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    for (float& value : values) {
      const float unit = static_cast<float>(random() % 1024) / 1024;
      value = bias ? 0.2f * (unit - 0.5f) : 0.8f + unit;
    }
    std::memcpy(out.data(), values.data() + slice[0].begin, out.size());
    return absl::OkStatus();
  }

 private:
  const model::TensorSource& model_;
  std::vector<model::TensorInfo> tensors_;
};

std::vector<serving::Request> Requests(int64_t vocab_size) {
  std::vector<serving::Request> requests;
  for (int i = 0; i < 20; ++i) {
    serving::Request request{.id = serving::RequestId(i + 1), .max_tokens = 48};
    // Of all lengths, also longer than a micro-batch.
    const int length = i < 4 ? 1 + i : 5 + i * i;
    for (int t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 131 + i * 29 + 7) % vocab_size));
    }
    request.sampling = {.temperature = 0};
    requests.push_back(request);
  }
  return requests;
}

class CudaLayoutTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    SKEIN_ASSERT_OK_AND_ASSIGN(config_, model::LoadModelConfig(kBard));
    SKEIN_ASSERT_OK_AND_ASSIGN(tensors_, model::OpenTensorSource(kBard));
  }

  // `tensors`: bard's, or those in their place.
  std::unique_ptr<LocalReplica> OnGpu(LocalReplicaOptions options,
                                      const model::TensorSource* tensors = nullptr) {
    options.device = DeviceKind::kCuda;
    options.kv_dtype = kv_dtype_;
    options.hop_dtype = kernels::ActivationDType(DeviceKind::kCuda, config_.dtype);
    options.observe = false;
    // Persistent steps of two ranks would keep each other from the multiprocessors.
    const bool alone = options.layout.ranks() == 1;
    options.make_backend = [form = alone ? decode_ : kernels::DecodeForm::kGraph] {
      return *kernels::MakeCudaBackend({.threads = 2, .decode = form});
    };
    options.make_copies = [] { return *kernels::MakeCudaCopies(0); };
    return *LocalReplica::Create(config_, tensors == nullptr ? *tensors_ : *tensors, options);
  }
  std::unique_ptr<LocalReplica> OnCpu(LocalReplicaOptions options,
                                      const model::TensorSource* tensors = nullptr) {
    options.kv_dtype = kv_dtype_;
    options.make_backend = [] { return *kernels::MakeCpuBackend({.threads = 4}); };
    return *LocalReplica::Create(config_, tensors == nullptr ? *tensors_ : *tensors, options);
  }

  kernels::KvDType kv_dtype_ = kernels::KvDType::kBF16;
  kernels::DecodeForm decode_ = kernels::DecodeForm::kAuto;
  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
};

// Where an answer leaves the CPU's, the two tokens were as likely as roundings can tell.
void ExpectSameAnswers(const std::vector<serving::Request>& requests,
                       const LocalReplica::Answers& gpu, const LocalReplica::Answers& cpu,
                       const LocalReplica::Logits& logits, float tie_gap = kTieGap) {
  int64_t same = 0, ties = 0;
  for (const serving::Request& request : requests) {
    const LocalReplica::AnswerId id = {request.id, 0};
    const std::vector<int32_t>&ours = gpu.at(id), &theirs = cpu.at(id);
    ASSERT_EQ(ours.size(), theirs.size());
    const auto first = std::mismatch(ours.begin(), ours.end(), theirs.begin());
    same += first.first - ours.begin();
    if (first.first == ours.end()) continue;
    ++ties;
    const int64_t position =
        static_cast<int64_t>(request.prompt.size()) + (first.first - ours.begin());
    // The row before gives the token.
    std::vector<float> row = logits.at({id, position - 1});
    const float gap = row[*first.second] - row[*first.first];
    std::printf("request %lld leaves the CPU's answer after %lld tokens, by a gap of %.3f\n",
                static_cast<long long>(request.id.value()),
                static_cast<long long>(first.first - ours.begin()), static_cast<double>(gap));
    EXPECT_GE(gap, 0);
    EXPECT_LT(gap, tie_gap) << "request " << request.id.value() << ", token "
                            << first.first - ours.begin();
  }
  // Most answers never leave it.
  EXPECT_LE(ties, static_cast<int64_t>(requests.size()) / 2);
  EXPECT_GE(same, static_cast<int64_t>(requests.size()) * 48 / 2);
}

// However small batches are decoded.
TEST_F(CudaLayoutTest, GreedyAnswersAreTheCpus) {
  const std::vector<serving::Request> requests = Requests(config_.vocab_size);
  const SchedulerLimits limits = {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128};
  const LocalReplicaOptions options = {.pages = 1024, .max_num_seqs = 16};
  const auto cpu = OnCpu(options);
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers want, cpu->Generate(requests, limits));
  using Form = kernels::DecodeForm;
  for (const Form form : {Form::kAuto, Form::kGraph, Form::kPersistent}) {
    SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form));
    decode_ = form;
    const auto gpu = OnGpu(options);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got, gpu->Generate(requests, limits));
    ExpectSameAnswers(requests, got, want, cpu->logits());
  }
}

TEST_F(CudaLayoutTest, GreedyAnswersWithAnInt8CacheAreTheCpus) {
  kv_dtype_ = kernels::KvDType::kInt8;
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  const SchedulerLimits limits = {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128};
  const LocalReplicaOptions options = {.pages = 1024, .max_num_seqs = 16};
  const auto cpu = OnCpu(options);
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers want, cpu->Generate(requests, limits));
  const auto gpu = OnGpu(options);
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got, gpu->Generate(requests, limits));
  ExpectSameAnswers(requests, got, want, cpu->logits(), kInt8TieGap);
  // Few pages, which are swapped.
  requests.resize(12);
  const auto few = OnGpu({.pages = 28,
                          .swap_pages = 64,
                          .max_num_seqs = 8,
                          .rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e6}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers swapped, few->Generate(requests, limits));
  EXPECT_GT(few->load().preemptions_swapped, 0);
  ExpectSameAnswers(requests, swapped, want, cpu->logits(), kInt8TieGap);
}

TEST_F(CudaLayoutTest, AModelOfF16AnswersInF16) {
  const F16Tensors tensors(*tensors_);
  config_.dtype = DType::kF16;
  kv_dtype_ = kernels::KvDType::kF16;
  const std::vector<serving::Request> requests = Requests(config_.vocab_size);
  const SchedulerLimits limits = {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128};
  const auto cpu = OnCpu({.pages = 1024, .max_num_seqs = 16}, &tensors);
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers want, cpu->Generate(requests, limits));
  for (const plan::Layout& layout : {plan::Layout{}, plan::Layout{.tp_size = 2, .pp_size = 2}}) {
    const auto gpu = OnGpu({.layout = layout, .pages = 1024, .max_num_seqs = 16}, &tensors);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got,
                               gpu->Generate(requests, {.max_num_batched_tokens = 128,
                                                        .stages = layout.pp_size,
                                                        .micro_batches = layout.pp_size,
                                                        .max_micro_batch_rows = 128}));
    ExpectSameAnswers(requests, got, want, cpu->logits(), kF16TieGap);
  }
}

// What other architectures have and Llama has not, as far as GPUs have kernels for it.
TEST_F(CudaLayoutTest, VariationsAnswerAsTheCpu) {
  const model::ModelConfig plain = config_;
  const std::vector<std::pair<const char*, std::function<void(model::ModelConfig&)>>> kVariations =
      {
          {"windows", [](auto& c) { c.windows = {0, 24, 40, 24, 0, 100, 40, 24}; }},
          {"layers that are not rotated",
           [](auto& c) { c.unrotated = {false, true, false, false, false, true, false, false}; }},
          {"biases", [](auto& c) { c.qkv_bias = c.output_bias = c.mlp_bias = true; }},
          {"norms of queries and keys", [](auto& c) { c.qk_norm = true; }},
          {"two frequencies",
           [](auto& c) {
             c.windows = {0, 24, 40, 24, 0, 100, 40, 24};
             c.window_rope = model::RopeConfig{.theta = 1000};
           }},
      };
  std::vector<serving::Request> requests = Requests(plain.vocab_size);
  requests.resize(12);
  const SchedulerLimits limits = {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128};
  for (const auto& [name, vary] : kVariations) {
    SCOPED_TRACE(name);
    config_ = plain;
    vary(config_);
    const WithVectors tensors(*tensors_, config_);
    const auto cpu = OnCpu({.pages = 1024, .max_num_seqs = 16}, &tensors);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers want, cpu->Generate(requests, limits));
    for (const plan::Layout& layout : {plan::Layout{}, plan::Layout{.tp_size = 2}}) {
      SCOPED_TRACE(layout.ToString());
      const auto gpu = OnGpu({.layout = layout, .pages = 1024, .max_num_seqs = 16}, &tensors);
      SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got, gpu->Generate(requests, limits));
      ExpectSameAnswers(requests, got, want, cpu->logits());
    }
  }
}

// All ranks on one GPU, which exchange by way of the host: the layouts, not their speed.
TEST_F(CudaLayoutTest, LayoutsAnswerAsTheCpu) {
  std::vector<serving::Request> greedy = Requests(config_.vocab_size);
  greedy.resize(10);
  const LocalReplicaOptions options = {.pages = 1024, .max_num_seqs = 8};
  const auto cpu = OnCpu(options);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const LocalReplica::Answers want,
      cpu->Generate(greedy, {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128}));
  // Beside them draws from first tokens, from whole rows, and from rows that history changes.
  std::vector<serving::Request> all = greedy;
  for (int i = 0; i < 3; ++i) {
    all.push_back(greedy[i]);
    all.back().id = serving::RequestId(100 + i);
  }
  all[10].sampling = {.temperature = 0.7f, .top_k = 4, .seed = 1};
  all[11].sampling = {.temperature = 0.7f, .seed = 2};
  all[12].sampling = {.repetition_penalty = 1.2f, .temperature = 0};
  for (const plan::Layout& layout : {plan::Layout{.tp_size = 2}, plan::Layout{.pp_size = 2},
                                     plan::Layout{.tp_size = 2, .pp_size = 2}}) {
    SCOPED_TRACE(testing::Message() << "tp " << layout.tp_size << ", pp " << layout.pp_size);
    const auto gpu = OnGpu({.layout = layout, .pages = 1024, .max_num_seqs = 8});
    SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t before, kernels::cuda::FreeMemoryBytes());
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got,
                               gpu->Generate(all, {.max_num_batched_tokens = 128,
                                                   .stages = layout.pp_size,
                                                   .micro_batches = layout.pp_size,
                                                   .max_micro_batch_rows = 64}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t after, kernels::cuda::FreeMemoryBytes());
    EXPECT_EQ(after, before) << "steps take no memory of the device";
    ExpectSameAnswers(greedy, got, want, cpu->logits());
    for (size_t i = 10; i < all.size(); ++i) EXPECT_EQ(got.at({all[i].id, 0}).size(), 48u);
  }
}

// Few pages: sequences give way, swap out and in, and are recomputed.
TEST_F(CudaLayoutTest, AnswersOutliveSwapping) {
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  requests.resize(12);
  const SchedulerLimits limits = {.max_num_batched_tokens = 128, .max_micro_batch_rows = 128};
  const auto cpu = OnCpu({.pages = 1024, .max_num_seqs = 8});
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers want, cpu->Generate(requests, limits));
  const auto gpu = OnGpu({.pages = 28,
                          .swap_pages = 64,
                          .max_num_seqs = 8,
                          .rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e6}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers got, gpu->Generate(requests, limits));
  EXPECT_GT(gpu->load().preemptions_swapped, 0);
  ExpectSameAnswers(requests, got, want, cpu->logits());
}

}  // namespace
}  // namespace skein::worker
