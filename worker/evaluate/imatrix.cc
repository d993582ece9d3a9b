#include "worker/evaluate/imatrix.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/bench/report.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "model/quantize/importance.h"
#include "model/quantize/importance_counter.h"
#include "worker/evaluate/host_model.h"
#include "worker/evaluate/text_tokens.h"
#include "worker/evaluate/text_windows.h"

namespace skein::worker {
namespace {

// Tells the counter which tensors a product's weight is of.
class Observer final : public kernels::ProductObserver {
 public:
  Observer(const plan::RankProgram& program, model::ImportanceCounter& counter)
      : program_(program), counter_(counter), tensors_(program.program.weights.size()) {
    for (const plan::WeightPart& part : program.parts) {
      std::vector<std::string>& tensors = tensors_[static_cast<size_t>(part.weight)];
      if (std::find(tensors.begin(), tensors.end(), part.tensor) == tensors.end()) {
        tensors.push_back(part.tensor);
      }
    }
  }
  void Multiplied(kernels::WeightId weight, const float* in, int64_t rows) override {
    const auto index = static_cast<size_t>(weight);
    const int64_t cols = program_.program.weights[index].spec.cols;
    for (const std::string& tensor : tensors_[index]) counter_.Add(tensor, in, rows, cols);
  }

 private:
  const plan::RankProgram& program_;
  model::ImportanceCounter& counter_;
  std::vector<std::vector<std::string>> tensors_;  // by weight
};

// Expert by expert, those that no token chose.
int64_t CountUnused(const model::ImportanceMatrix& matrix) {
  int64_t unused = 0;
  for (const auto& [name, tensor] : matrix.tensors) {
    if (absl::StrContains(name, ".ffn_down_exps.")) {
      unused += std::count(tensor.counts.begin(), tensor.counts.end(), 0);
    }
  }
  return unused;
}

}  // namespace

absl::Status RunImatrix(const ImatrixOptions& options) {
  SKEIN_RETURN_IF_ERROR(model::CheckNewImportance(options.out));
  SKEIN_ASSIGN_OR_RETURN(const TextTokens tokens,
                         ReadTextTokens(options.model, options.text, options.most_tokens));
  const int64_t begins = tokens.begin ? 1 : 0;
  SKEIN_ASSIGN_OR_RETURN(
      const std::vector<TextWindow> windows,
      CutWindows(static_cast<int64_t>(tokens.ids.size()), {.context = options.context,
                                                           .stride = options.context - begins,
                                                           .has_begin = begins > 0}));
  SKEIN_ASSIGN_OR_RETURN(model::ImportanceCounter counter,
                         model::ImportanceCounter::Create(options.model));
  SKEIN_ASSIGN_OR_RETURN(const auto model, HostModel::Load({.model = options.model,
                                                            .threads = options.threads,
                                                            .context = options.context}));
  Observer observer(model->program(), counter);
  model->Observe(&observer);
  int64_t computed = 0;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < windows.size(); ++i) {
    ids.clear();
    if (tokens.begin) ids.push_back(*tokens.begin);
    ids.insert(ids.end(), tokens.ids.begin() + windows[i].begin,
               tokens.ids.begin() + windows[i].end);
    model->BeginSequence();
    const auto all = absl::MakeConstSpan(ids);
    for (size_t begin = 0; begin < ids.size();) {
      const absl::Span<const int32_t> step =
          all.subspan(begin, static_cast<size_t>(model->step_rows()));
      SKEIN_RETURN_IF_ERROR(model->Step(step, static_cast<int64_t>(step.size())).status());
      begin += step.size();
    }
    computed += static_cast<int64_t>(ids.size());
    ShowProgress(absl::StrFormat("window %d of %d", i + 1, windows.size()));
  }
  ShowProgress("");
  model::ImportanceMatrix matrix = counter.Matrix();
  matrix.texts = {options.text};
  matrix.chunks = static_cast<int64_t>(windows.size());
  matrix.chunk_tokens = options.context;
  SKEIN_RETURN_IF_ERROR(model::WriteImportance(matrix, options.out));
  absl::PrintF("%s\n%s, by %d tokens of %s\n", Printable(options.out),
               FormatCount(static_cast<int64_t>(matrix.tensors.size()), "tensor"), computed,
               Printable(options.text));
  if (const int64_t unused = CountUnused(matrix); unused > 0) {
    absl::PrintF("%s of %d chosen by no token: more text tells more\n",
                 FormatCount(unused, "expert"),
                 model->config().experts.count * model->config().num_layers);
  }
  return absl::OkStatus();
}

}  // namespace skein::worker
