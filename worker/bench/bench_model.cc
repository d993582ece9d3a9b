#include "worker/bench/bench_model.h"

#include <algorithm>
#include <cmath>
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
#include "parallel/plan/shard.h"
#include "parallel/planner/kv_bytes.h"

namespace skein::worker {
namespace {

// Of a matrix's rows, those whose products are of bytes.
double ShareOfBytes(const kernels::Program& program, const kernels::WeightSpec& spec) {
  if (program.exact) return 0;
  int64_t rows = 0;
  for (const kernels::WeightSpec::Part& part : kernels::PartsOf(spec)) {
    if (kernels::HasIntegers(part.dtype)) rows += part.rows;
  }
  return static_cast<double>(rows) / static_cast<double>(spec.rows);
}

StepCost CostOf(const plan::RankProgram& program, const LoadedShard& shard,
                int64_t experts_of_model) {
  StepCost cost;
  for (const kernels::Op& op : program.program.ops) {
    if (const auto* attention = std::get_if<kernels::AttentionOp>(&op)) {
      // Products of queries with keys, and of weights with values.
      cost.flops_per_pair += 4.0 * attention->heads * attention->head_dim;
    }
    if (const auto* experts = std::get_if<kernels::ExpertsOp>(&op)) {
      // A row has some of them, of which this rank has a part; all are read where rows are many.
      const double chosen = static_cast<double>(program.program.buffers[experts->routes].cols / 2);
      const auto of_model = static_cast<double>(experts_of_model);
      for (int32_t i = 0; i < 2 * experts->count; ++i) {
        const kernels::WeightId weight = experts->first_weight + i;
        const kernels::WeightSpec& spec = program.program.weights[weight].spec;
        const double flops = 2.0 * static_cast<double>(spec.rows) * static_cast<double>(spec.cols) *
                             chosen / of_model;
        cost.flops_per_row += flops;
        cost.byte_ops_per_row += flops * ShareOfBytes(program.program, spec);
        cost.weight_bytes += shard.weights->bytes(weight);
      }
    }
    const auto* matmul = std::get_if<kernels::MatMulOp>(&op);
    if (matmul == nullptr) continue;
    const kernels::WeightSpec& spec = program.program.weights[matmul->weight].spec;
    const double flops = 2.0 * static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    const bool tokens =
        program.program.buffers[matmul->in].rows == kernels::BufferSpec::Rows::kTokens;
    (tokens ? cost.flops_per_row : cost.flops_per_output) += flops;
    (tokens ? cost.byte_ops_per_row : cost.byte_ops_per_output) +=
        flops * ShareOfBytes(program.program, spec);
    cost.weight_bytes += shard.weights->bytes(matmul->weight);
  }
  const kernels::KvSpec& kv = program.kv;
  const auto values = static_cast<double>(kv.layers * 2 * kv.kv_heads * kv.head_dim);
  cost.kv_bytes = std::llround(values * plan::KvBytesPerValue(kv.dtype, kv.head_dim));
  return cost;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchModel>> BenchModel::Load(const BenchModelOptions& options,
                                                             BenchDevice& device,
                                                             BenchRanks& ranks) {
  auto model = std::unique_ptr<BenchModel>(new BenchModel(options, device, ranks));
  SKEIN_RETURN_IF_ERROR(Annotate(model->Open(), "--model"));
  SKEIN_RETURN_IF_ERROR(model->Load());
  return model;
}

absl::Status BenchModel::Open() {
  if (options_.config) {
    config_ = *options_.config;
    tensors_ = model::MakeSyntheticWeights(config_, "random weights", options_.matrices);
    config_.stored = model::ReadStoredTypes(*tensors_, config_.tie_word_embeddings);
  } else if (model::IsSyntheticSpec(options_.model)) {
    SKEIN_ASSIGN_OR_RETURN(model::SyntheticModel synthetic,
                           model::ParseSyntheticSpec(options_.model));
    config_ = synthetic.config;
    // Random weights know no positions.
    config_.max_position_embeddings =
        std::max<int64_t>(config_.max_position_embeddings, options_.most_tokens);
    tensors_ = std::move(synthetic.weights);
  } else {
    SKEIN_ASSIGN_OR_RETURN(config_, model::LoadModelConfig(options_.model));
    SKEIN_ASSIGN_OR_RETURN(tensors_, model::OpenTensorSource(options_.model));
  }
  return absl::OkStatus();
}

absl::Status BenchModel::Load() {
  if (options_.most_tokens > config_.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-tokens and --decode-tokens: ", options_.most_tokens,
                     " tokens exceed the model's context of ", config_.max_position_embeddings));
  }
  const DeviceKind kind = device_.device.device.kind;
  const int64_t page_size = kernels::PageTokens(kind);
  pages_per_sequence_ = (options_.most_tokens + page_size - 1) / page_size;
  const DType activations = kernels::ActivationDType(kind, config_.dtype);
  const plan::Layout& layout = ranks_.layout();
  SKEIN_ASSIGN_OR_RETURN(
      program_,
      plan::BuildRankProgram(
          config_, tensors_.get(),
          {.tp_size = layout.tp_size,
           .tp_rank = ranks_.self().tp_rank,
           .ep_size = layout.ep_size,
           .layers = plan::BalancedStageLayers(config_, layout.pp_size, ranks_.self().pp_rank),
           .page_size = page_size,
           .pages = pages_per_sequence_ * options_.sequences,
           .kv_dtype = options_.kv_dtype.value_or(plan::KvAsComputed(activations)),
           .hop_dtype = activations,
           .activations = activations,
           .deterministic = options_.deterministic}));
  ShardLoadOptions load{.threads = device_.threads};
  load.progress = [&](int64_t done, int64_t total) {
    ShowProgress(absl::StrFormat("loading %s: %d%%", options_.model, done * 100 / total));
  };
  if (options_.config) load.progress = nullptr;
  SKEIN_ASSIGN_OR_RETURN(shard_, LoadShard(*tensors_, program_, *device_.backend, load));
  SKEIN_RETURN_IF_ERROR(ranks_.Connect(device_.device, options_.deterministic));
  SKEIN_ASSIGN_OR_RETURN(kv_, device_.backend->AllocateKv(program_.kv));
  SKEIN_ASSIGN_OR_RETURN(
      executable_,
      device_.backend->Compile(
          program_.program,
          {.rows = std::max(options_.most_rows, options_.sequences),
           .outputs = options_.sequences,
           .slots = options_.sequences,
           .slot_pages = pages_per_sequence_},
          {.weights = shard_.weights.get(), .kv = kv_.get(), .collectives = ranks_.collectives()}));
  stage_ = std::make_unique<Stage>(StageOptions{.tp_size = ranks_.layout().tp_size,
                                                .pp_size = ranks_.layout().pp_size,
                                                .pp_rank = ranks_.self().pp_rank,
                                                .tp_rank = ranks_.self().tp_rank,
                                                .slots = options_.sequences,
                                                .groups = ranks_.groups()},
                                   program_.program, executable_.get());
  cost_ = CostOf(program_, shard_, config_.experts.count);
  if (!options_.config) ShowProgress("warming up");
  return stage_->WarmUp();
}

StepOrder BenchModel::PrefillOrder(int32_t slot, int32_t tokens) {
  StepOrder order{.step = ++orders_, .starts = {{.slot = slot, .sampling = {.temperature = 0}}}};
  kernels::SlotUpdate& update = order.updates.emplace_back(kernels::SlotUpdate{.slot = slot});
  for (int64_t i = 0; i < pages_per_sequence_; ++i) {
    update.pages.push_back(static_cast<int32_t>(slot * pages_per_sequence_ + i));
  }
  ChunkOrder chunk{.slot = slot, .draws = true};
  for (int32_t i = 0; i < tokens; ++i) {
    chunk.tokens.push_back(static_cast<int32_t>((i * int64_t{7919} + 17) % config_.vocab_size));
  }
  order.micro_batches = {{chunk}};
  return order;
}

absl::Status BenchModel::Prefill(int32_t slot, int32_t tokens) {
  StepOrder all = PrefillOrder(slot, tokens);
  const ChunkOrder prompt = std::move(all.micro_batches.front().front());
  for (int32_t begin = 0; begin < tokens; begin += options_.most_rows) {
    const int32_t end = std::min(tokens, begin + options_.most_rows);
    StepOrder order = std::exchange(all, {});  // the first one starts the sequence
    if (begin > 0) order.step = ++orders_;
    ChunkOrder chunk = {.slot = slot, .draws = end == tokens};
    chunk.tokens.assign(prompt.tokens.begin() + begin, prompt.tokens.begin() + end);
    order.micro_batches = {{chunk}};
    SKEIN_RETURN_IF_ERROR(TimeStep(order).status());
  }
  return absl::OkStatus();
}

absl::Status BenchModel::FillPages() {
  SKEIN_RETURN_IF_ERROR(Prefill(0, static_cast<int32_t>(program_.kv.page_size)));
  StepOrder order = StartOrder(1);
  for (int32_t page = 1; page < program_.kv.pages; ++page) {
    order.copies.push_back({.from = 0, .to = page});
  }
  return TimeStep(order).status();
}

StepOrder BenchModel::StartOrder(int32_t sequences, int64_t positions) {
  StepOrder all;
  for (int32_t slot = 0; slot < sequences; ++slot) {
    StepOrder one = PrefillOrder(slot, 1);
    one.updates.front().length = positions;
    all.step = one.step;
    all.starts.push_back(std::move(one.starts.front()));
    all.updates.push_back(std::move(one.updates.front()));
    all.micro_batches.resize(1);
    all.micro_batches.front().push_back(std::move(one.micro_batches.front().front()));
  }
  return all;
}

StepOrder BenchModel::DecodeOrder(int32_t sequences) {
  StepOrder order{.step = ++orders_};
  order.micro_batches.resize(std::min(sequences, ranks_.layout().pp_size));
  for (int32_t slot = 0; slot < sequences; ++slot) {
    order.micro_batches[slot % order.micro_batches.size()].push_back(
        {.slot = slot, .tokens = {kernels::kNewestToken}, .draws = true});
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
