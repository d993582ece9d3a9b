#include "worker/evaluate/host_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/device_kind.h"
#include "base/printable.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/ops/sizes.h"
#include "model/format/open.h"
#include "worker/host_backend.h"

namespace skein::worker {

absl::StatusOr<std::unique_ptr<HostModel>> HostModel::Load(const HostModelOptions& options) {
  auto model = std::unique_ptr<HostModel>(new HostModel(options));
  SKEIN_RETURN_IF_ERROR(model->Load());
  return model;
}

absl::Status HostModel::Load() {
  SKEIN_ASSIGN_OR_RETURN(config_, model::LoadModelConfig(options_.model));
  if (options_.context > config_.max_position_embeddings) {
    return absl::InvalidArgumentError(
        absl::StrCat("--context: ", options_.context, " tokens exceed the ",
                     config_.max_position_embeddings, " of ", options_.model));
  }
  SKEIN_ASSIGN_OR_RETURN(auto tensors, model::OpenTensorSource(options_.model));
  const int64_t page_size = kernels::PageTokens(DeviceKind::kCpu);
  const int64_t pages = (options_.context + page_size - 1) / page_size;
  absl::StatusOr<plan::RankProgram> program =
      plan::BuildRankProgram(config_, tensors.get(),
                             {.layers = {0, config_.num_layers},
                              .context_length = options_.context,
                              .page_size = page_size,
                              .pages = pages,
                              .kv_dtype = options_.kv_dtype,
                              .exact = options_.exact});
  if (!program.ok()) return Annotate(program.status(), options_.model);
  program_ = *std::move(program);
  SKEIN_ASSIGN_OR_RETURN(backend_, MakeHostBackend(options_.threads));
  ShardLoadOptions load{.threads = options_.threads};
  load.progress = [&](int64_t done, int64_t total) {
    ShowProgress(
        absl::StrFormat("loading %s: %d%%", Printable(options_.model), done * 100 / total));
  };
  SKEIN_ASSIGN_OR_RETURN(shard_, LoadShard(*tensors, program_, *backend_, load));
  ShowProgress("");
  SKEIN_ASSIGN_OR_RETURN(kv_, backend_->AllocateKv(program_.kv));
  SKEIN_ASSIGN_OR_RETURN(
      executable_,
      backend_->Compile(
          program_.program,
          {.rows = options_.step_rows, .outputs = options_.step_rows, .slot_pages = pages},
          {.weights = shard_.weights.get(), .kv = kv_.get(), .products = &observer_}));
  return executable_->WarmUp();
}

absl::StatusOr<HostModel::Logits> HostModel::Step(absl::Span<const int32_t> tokens,
                                                  int64_t outputs) {
  kernels::Batch& batch = executable_->batch(0);
  batch.Clear();
  if (std::exchange(begins_, false)) {
    batch.starts.push_back({.sampling = {.temperature = 0}});
    kernels::SlotUpdate& update = batch.updates.emplace_back();
    for (int32_t page = 0; page < program_.kv.pages; ++page) update.pages.push_back(page);
  }
  batch.token_ids.assign(tokens.begin(), tokens.end());
  batch.sequences.push_back(
      {.rows = static_cast<int32_t>(tokens.size()), .outputs = static_cast<int32_t>(outputs)});
  SKEIN_ASSIGN_OR_RETURN(const kernels::Ticket ticket, executable_->Enqueue(0));
  SKEIN_RETURN_IF_ERROR(executable_->Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
  const View logits = executable_->port(program_.program.logits, 0);
  return Logits(static_cast<const float*>(logits.data), logits.cols,
                program_.program.vocab_tokens());
}

}  // namespace skein::worker
