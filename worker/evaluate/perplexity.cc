#include "worker/evaluate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "model/config/model_config.h"
#include "worker/evaluate/divergence.h"
#include "worker/evaluate/host_model.h"
#include "worker/evaluate/text_tokens.h"
#include "worker/evaluate/text_windows.h"

namespace skein::worker {
namespace {

// Takes the windows' rows of one model, or of two at once.
class Scorer {
 public:
  Scorer(HostModel& model, HostModel* against) : model_(model), against_(against) {}

  // `tokens` of a window; those from `first` on are scored, first > 0.
  absl::Status Score(absl::Span<const int32_t> tokens, int64_t first) {
    model_.BeginSequence();
    if (against_ != nullptr) against_->BeginSequence();
    const auto rows = static_cast<int64_t>(tokens.size()) - 1;  // nobody foretells by the last one
    for (int64_t begin = 0; begin < rows; begin += model_.step_rows()) {
      const int64_t end = std::min(begin + model_.step_rows(), rows);
      const int64_t outputs = std::clamp<int64_t>(end - (first - 1), 0, end - begin);
      SKEIN_RETURN_IF_ERROR(Step(tokens, begin, end, outputs));
    }
    return absl::OkStatus();
  }

  double perplexity() const { return std::exp(nll_.Mean()); }

  Perplexity Result() const {
    Perplexity result = {.tokens = nll_.count(), .nll = nll_.Mean(), .nll_error = nll_.MeanError()};
    if (against_ == nullptr) return result;
    result.divergence = {.mean = kl_.Mean(),
                         .error = kl_.MeanError(),
                         .median = kl_.Quantile(0.5),
                         .p99 = kl_.Quantile(0.99),
                         .most = kl_.Quantile(1),
                         .same_top = same_top_.Mean(),
                         .against_perplexity = std::exp(against_nll_.Mean())};
    return result;
  }

 private:
  absl::Status Step(absl::Span<const int32_t> tokens, int64_t begin, int64_t end, int64_t outputs) {
    const auto chunk = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    SKEIN_ASSIGN_OR_RETURN(const HostModel::Logits logits, model_.Step(chunk, outputs));
    for (int64_t i = 0; i < outputs; ++i) {
      nll_.Add(NegativeLogLikelihood(logits.row(i), NextOf(tokens, end - outputs + i)));
    }
    SKEIN_RETURN_IF_ERROR(CheckFinite(nll_, model_));
    if (against_ == nullptr) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(const HostModel::Logits truth, against_->Step(chunk, outputs));
    for (int64_t i = 0; i < outputs; ++i) {
      against_nll_.Add(NegativeLogLikelihood(truth.row(i), NextOf(tokens, end - outputs + i)));
      kl_.Add(KlDivergence(truth.row(i), logits.row(i)));
      same_top_.Add(SameTop(truth.row(i), logits.row(i)) ? 1 : 0);
    }
    SKEIN_RETURN_IF_ERROR(CheckFinite(against_nll_, *against_));
    return CheckFinite(kl_, model_);
  }

  static absl::Status CheckFinite(const Samples& nll, const HostModel& model) {
    if (std::isfinite(nll.Mean())) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(model.path(), " gives logits that are no numbers, among those of token ",
                     nll.count(), " and the ", model.step_rows(), " before"));
  }

  static int32_t NextOf(absl::Span<const int32_t> tokens, int64_t row) {
    return tokens[static_cast<size_t>(row) + 1];
  }

  HostModel& model_;
  HostModel* const against_;
  Samples nll_;
  Samples against_nll_;
  Samples kl_;
  Samples same_top_;
};

// Whether the logits of --against can be compared, told before either model is loaded.
absl::Status CheckAgainst(const PerplexityOptions& options, const TextTokens& tokens) {
  SKEIN_ASSIGN_OR_RETURN(const TextTokens others,
                         ReadTextTokens(options.against, options.text, options.most_tokens));
  SKEIN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadModelConfig(options.model));
  SKEIN_ASSIGN_OR_RETURN(const model::ModelConfig other, model::LoadModelConfig(options.against));
  if (others.ids != tokens.ids || config.vocab_size != other.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("--against: ", options.against,
                                                   " has another vocabulary than ", options.model,
                                                   ": their logits cannot be compared"));
  }
  if (others.begin == tokens.begin) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--against: texts of ", options.against, " and of ", options.model,
                   " begin with unlike tokens: their logits cannot be compared"));
}

void Print(const PerplexityOptions& options, const Perplexity& got) {
  absl::PrintF("perplexity %.4f +- %.4f of %s, over %d tokens of %s\n", got.perplexity(),
               got.perplexity_error(), Printable(options.model), got.tokens,
               Printable(options.text));
  if (!got.divergence) return;
  const Perplexity::Divergence& from = *got.divergence;
  absl::PrintF(
      "perplexity %.4f of %s\n"
      "divergence from it, in nats: mean %.5f +- %.5f, median %.5f, 99%% %.5f, most %.5f\n"
      "same likeliest token: %.2f%%\n",
      from.against_perplexity, Printable(options.against), from.mean, from.error, from.median,
      from.p99, from.most, 100 * from.same_top);
}

std::string ToJson(const PerplexityOptions& options, const Perplexity& got) {
  nlohmann::ordered_json json = {{"model", Printable(options.model)},
                                 {"text", Printable(options.text)},
                                 {"context", options.context},
                                 {"windows", got.windows},
                                 {"tokens", got.tokens},
                                 {"nll", got.nll},
                                 {"nll_error", got.nll_error},
                                 {"perplexity", got.perplexity()},
                                 {"perplexity_error", got.perplexity_error()}};
  if (got.divergence) {
    const Perplexity::Divergence& from = *got.divergence;
    json["against"] = {{"model", Printable(options.against)},
                       {"perplexity", from.against_perplexity},
                       {"kl_mean", from.mean},
                       {"kl_error", from.error},
                       {"kl_median", from.median},
                       {"kl_p99", from.p99},
                       {"kl_max", from.most},
                       {"same_top", from.same_top}};
  }
  return json.dump() + "\n";
}

}  // namespace

double Perplexity::perplexity() const { return std::exp(nll); }
double Perplexity::perplexity_error() const { return perplexity() * nll_error; }

absl::StatusOr<Perplexity> MeasurePerplexity(const PerplexityOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const TextTokens tokens,
                         ReadTextTokens(options.model, options.text, options.most_tokens));
  WindowOptions cut = {.context = options.context, .has_begin = tokens.begin.has_value()};
  const int64_t most = cut.context - (cut.has_begin ? 1 : 0);
  cut.stride = options.stride > 0 ? options.stride : std::max<int64_t>(most / 2, 1);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<TextWindow> windows,
                         CutWindows(static_cast<int64_t>(tokens.ids.size()), cut));
  if (!options.against.empty()) SKEIN_RETURN_IF_ERROR(CheckAgainst(options, tokens));
  const HostModelOptions load = {.model = options.model,
                                 .threads = options.threads,
                                 .context = options.context,
                                 .kv_dtype = options.kv_dtype,
                                 .exact = options.exact};
  SKEIN_ASSIGN_OR_RETURN(const auto model, HostModel::Load(load));
  std::unique_ptr<HostModel> against;
  if (!options.against.empty()) {
    SKEIN_ASSIGN_OR_RETURN(against, HostModel::Load({.model = options.against,
                                                     .threads = options.threads,
                                                     .context = options.context}));
  }

  Scorer scorer(*model, against.get());
  const absl::Time begin = absl::Now();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < windows.size(); ++i) {
    const TextWindow& window = windows[i];
    ids.clear();
    if (tokens.begin) ids.push_back(*tokens.begin);
    const auto before = static_cast<int64_t>(ids.size());
    ids.insert(ids.end(), tokens.ids.begin() + window.begin, tokens.ids.begin() + window.end);
    SKEIN_RETURN_IF_ERROR(scorer.Score(ids, before + window.first_scored - window.begin));
    const absl::Duration took = absl::Now() - begin;
    const double left = static_cast<double>(windows.size()) / static_cast<double>(i + 1) - 1;
    ShowProgress(absl::StrFormat("window %d of %d, perplexity %.4f, %s to go", i + 1,
                                 windows.size(), scorer.perplexity(),
                                 absl::FormatDuration(absl::Trunc(took * left, absl::Seconds(1)))));
  }
  ShowProgress("");
  Perplexity result = scorer.Result();
  result.windows = static_cast<int64_t>(windows.size());
  return result;
}

absl::Status RunPerplexity(const PerplexityOptions& options) {
  SKEIN_RETURN_IF_ERROR(CheckJsonFile(options.json_file));
  SKEIN_ASSIGN_OR_RETURN(const Perplexity got, MeasurePerplexity(options));
  Print(options, got);
  return WriteJsonFile(options.json_file, ToJson(options, got));
}

}  // namespace skein::worker
