#include "worker/evaluate/evaluate_command.h"

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bench/report.h"
#include "base/flags/flags.h"
#include "parallel/plan/plan.h"
#include "topology/host/cores.h"
#include "worker/evaluate/imatrix.h"
#include "worker/evaluate/perplexity.h"

namespace skein::worker {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;

// What both have.
template <typename Options>
void AddText(CLI::App& command, Options& options) {
  command.add_option("MODEL", options.model, "a model's folder, or a GGUF file")
      ->required()
      ->check(NotEmpty());
  command.add_option("TEXT", options.text, "a file of text, in UTF-8")
      ->required()
      ->check(NotEmpty());
  command
      .add_option("--context", options.context, "tokens of a window, as which the text is computed")
      ->check(InRange<int64_t>(2, int64_t{1} << 30))
      ->capture_default_str();
  command
      .add_option("--tokens", options.most_tokens, "take the text's first so many tokens; 0: all")
      ->check(InRange<int64_t>(0, kMostTokens))
      ->capture_default_str();
  options.threads = 0;
  command.add_option("--threads", options.threads, "0: the cores that this process may use")
      ->check(InRange(0, 1024))
      ->capture_default_str();
}

absl::Status SetThreads(int& threads) {
  if (threads > 0) return absl::OkStatus();
  const absl::StatusOr<int32_t> cores = topology::AffinityCores();
  if (cores.ok()) threads = *cores;
  return cores.status();
}

}  // namespace

struct EvaluateCommand::Flags {
  CLI::App* perplexity = nullptr;
  CLI::App* imatrix = nullptr;
  PerplexityOptions perplexity_options;
  ImatrixOptions imatrix_options;
};

EvaluateCommand::EvaluateCommand(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  Flags& f = *flags_;
  f.perplexity = app.add_subcommand(
      "perplexity",
      "how well a model foretells a text, on this host's CPUs; and how far its foretelling is from "
      "another's");
  PerplexityOptions& options = f.perplexity_options;
  AddText(*f.perplexity, options);
  f.perplexity
      ->add_option("--stride", options.stride,
                   "tokens from one window's begin to the next one's: each is scored once, with at "
                   "least the rest of a window before it; 0: half of a window")
      ->check(InRange<int64_t>(0, int64_t{1} << 30))
      ->capture_default_str();
  f.perplexity
      ->add_option("--against", options.against,
                   "tell the Kullback-Leibler divergence from this model, of the same vocabulary: "
                   "the one that MODEL was quantised of")
      ->check(NotEmpty());
  AddParsed(*f.perplexity, "--kv-dtype", options.kv_dtype, plan::ParseKvDType,
            "how MODEL's keys and values are kept, as a coordinator's --kv-dtype has it")
      ->default_str("f32");
  f.perplexity->add_flag("--exact", options.exact,
                         "as a coordinator's --exact has it: inputs of quantised weights are not "
                         "rounded to 8 bits");
  f.perplexity
      ->add_option("--json", options.json_file,
                   "write the figures into this file, too; -: print them behind the others")
      ->check(NotEmpty());

  f.imatrix = app.add_subcommand(
      "imatrix",
      "how large the inputs of each product are on a text, for `skein quantize --imatrix`");
  AddText(*f.imatrix, f.imatrix_options);
  f.imatrix
      ->add_option("OUT", f.imatrix_options.out,
                   "the file to write (*.gguf), which must not be there yet")
      ->required()
      ->check(NotEmpty());
}

EvaluateCommand::~EvaluateCommand() = default;

bool EvaluateCommand::parsed() const {
  return flags_->perplexity->parsed() || flags_->imatrix->parsed();
}

int EvaluateCommand::Run() const {
  Flags& f = *flags_;
  const bool scores = f.perplexity->parsed();
  absl::Status status =
      SetThreads(scores ? f.perplexity_options.threads : f.imatrix_options.threads);
  if (status.ok()) {
    status = scores ? RunPerplexity(f.perplexity_options) : RunImatrix(f.imatrix_options);
  }
  if (status.ok()) return kExitOk;
  ShowProgress("");
  std::fprintf(stderr, "worker %s: %s\n", scores ? "perplexity" : "imatrix",
               std::string(status.message()).c_str());
  return kExitError;
}

}  // namespace skein::worker
