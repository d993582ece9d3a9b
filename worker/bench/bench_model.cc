#include "worker/bench/bench_model.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "kernels/ops/sizes.h"
#include "model/format/open.h"
#include "model/synthetic/synthetic.h"

namespace skein::worker {
namespace {

StepCost CostOf(const plan::RankProgram& program, const LoadedShard& shard) {
  StepCost cost;
  for (const kernels::Op& op : program.program.ops) {
    const auto* matmul = std::get_if<kernels::MatMulOp>(&op);
    if (matmul == nullptr) continue;
    const kernels::WeightSpec& spec = program.program.weights[matmul->weight].spec;
    const double flops = 2.0 * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool tokens =
        program.program.buffers[matmul->in].rows == kernels::BufferSpec::Rows::kTokens;
    (tokens ? cost.flops_per_row : cost.flops_per_output) += flops;
    cost.weight_bytes += shard.weights->bytes(matmul->weight);
  }
  return cost;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchModel>> BenchModel::Load(
    const BenchOptions& options, int threads, DeviceKind device,
    std::unique_ptr<kernels::Backend> backend,
    const std::function<void(const std::string&)>& progress) {
  auto model = std::unique_ptr<BenchModel>(new BenchModel(options, device));
  model->backend_ = std::move(backend);
  SKEIN_RETURN_IF_ERROR(Annotate(model->Open(), "--model"));
  SKEIN_RETURN_IF_ERROR(model->Load(threads, progress));
  return model;
}

absl::Status BenchModel::Open() {
  if (model::IsSyntheticSpec(options_.model)) {
    SKEIN_ASSIGN_OR_RETURN(model::SyntheticModel synthetic,
                           model::ParseSyntheticSpec(options_.model));
    config_ = synthetic.config;
    tensors_ = std::move(synthetic.weights);
  } else {
    SKEIN_ASSIGN_OR_RETURN(config_, model::LoadModelConfig(options_.model));
    SKEIN_ASSIGN_OR_RETURN(tensors_, model::OpenTensorSource(options_.model));
  }
  return absl::OkStatus();
}

absl::Status BenchModel::Load(int threads,
                              const std::function<void(const std::string&)>& progress) {
  const int64_t length = options_.prompt_tokens + options_.decode_tokens + 1;
  if (length > config_.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt-tokens and --decode-tokens: ", length,
                                                   " tokens exceed the model's context of ",
                                                   config_.max_position_embeddings));
  }
  const int64_t page_size = kernels::PageTokens(device_);
  pages_per_sequence_ = (length + page_size - 1) / page_size;
  const bool gpu = device_ == DeviceKind::kCuda;
  SKEIN_ASSIGN_OR_RETURN(
      program_,
      plan::BuildRankProgram(config_, tensors_.get(),
                             {.layers = Range{0, config_.num_layers},
                              .page_size = page_size,
                              .pages = pages_per_sequence_ * options_.batch,
                              .kv_dtype = gpu ? kernels::KvDType::kBF16 : kernels::KvDType::kF32,
                              .activations = kernels::ActivationDType(device_)}));
  ShardLoadOptions load{.threads = threads};
  load.progress = [&](int64_t done, int64_t total) {
    progress(absl::StrFormat("loading %s: %d%%", options_.model, done * 100 / total));
  };
  SKEIN_ASSIGN_OR_RETURN(shard_, LoadShard(*tensors_, program_, *backend_, load));
  SKEIN_ASSIGN_OR_RETURN(kv_, backend_->AllocateKv(program_.kv));
  SKEIN_ASSIGN_OR_RETURN(
      executable_,
      backend_->Compile(program_.program,
                        {.rows = std::max<int64_t>(options_.prompt_tokens, options_.batch),
                         .outputs = options_.batch,
                         .slots = options_.batch,
                         .slot_pages = pages_per_sequence_},
                        {.weights = shard_.weights.get(), .kv = kv_.get()}));
  SKEIN_RETURN_IF_ERROR(executable_->WarmUp());
  stage_ = std::make_unique<Stage>(StageOptions{.slots = options_.batch}, program_.program,
                                   executable_.get());
  cost_ = CostOf(program_, shard_);
  return absl::OkStatus();
}

int64_t BenchModel::BytesPerPosition() const {
  const int64_t element_bytes = program_.kv.dtype == kernels::KvDType::kF32 ? 4 : 2;
  return program_.kv.layers * 2 * program_.kv.kv_heads * program_.kv.head_dim * element_bytes;
}

StepOrder BenchModel::PrefillOrder(int32_t slot) const {
  StepOrder order{.starts = {{.slot = slot, .sampling = {.temperature = 0}}}};
  kernels::SlotUpdate& update = order.updates.emplace_back(kernels::SlotUpdate{.slot = slot});
  for (int64_t i = 0; i < pages_per_sequence_; ++i) {
    update.pages.push_back(static_cast<int32_t>(slot * pages_per_sequence_ + i));
  }
  ChunkOrder chunk{.slot = slot, .draws = true};
  for (int i = 0; i < options_.prompt_tokens; ++i) {
    chunk.tokens.push_back(static_cast<int32_t>((i * 7919 + 17) % config_.vocab_size));
  }
  order.micro_batches = {{chunk}};
  return order;
}

StepOrder BenchModel::DecodeOrder() const {
  StepOrder order;
  std::vector<ChunkOrder>& chunks = order.micro_batches.emplace_back();
  for (int32_t slot = 0; slot < options_.batch; ++slot) {
    chunks.push_back({.slot = slot, .tokens = {kernels::kNewestToken}, .draws = true});
  }
  return order;
}

absl::Status BenchModel::Finish() {
  const StepResult result = *stage_->Finish(absl::InfiniteFuture());
  SKEIN_RETURN_IF_ERROR(result.status);
  for (const kernels::SampledTokens& row : result.sampled) {
    if (!row.error.empty()) return absl::InternalError(row.error);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> BenchModel::TimeStep(const StepOrder& order) {
  const absl::Time begin = absl::Now();
  stage_->Begin(order);
  SKEIN_RETURN_IF_ERROR(Finish());
  return absl::Now() - begin;
}

}  // namespace skein::worker
