#include "coordinator/client/sampling_flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"

namespace skein::client {
namespace {

// "42=-1.5".
std::optional<std::pair<uint32_t, float>> ParseBias(const std::string& text) {
  std::pair<uint32_t, float> bias;
  const size_t equals = text.find('=');
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(0, equals), &bias.first) ||
      !absl::SimpleAtof(text.substr(equals + 1), &bias.second)) {
    return std::nullopt;
  }
  return bias;
}

// For CLI11's check().
std::string CheckBias(const std::string& text) {
  if (ParseBias(text).has_value()) return "";
  return absl::StrCat("'", text, "' is not a token's id and a bias, like 42=-1.5");
}

// Declares flags of one message.
class Flags {
 public:
  Flags(CLI::App& command, v1::Sampling& sampling) : command_(command), sampling_(&sampling) {}

  template <typename T>
  void Add(const char* flag, void (v1::Sampling::*set)(T), const char* help) {
    command_
        .add_option_function<T>(
            flag, [sampling = sampling_, set](const T& value) { (sampling->*set)(value); }, help)
        ->check(InRange<T>());
  }

  // Each time that it is given adds one.
  template <typename Function>
  CLI::Option* AddRepeated(const char* flag, Function add, const char* help) {
    using Texts = std::vector<std::string>;
    return command_
        .add_option_function<Texts>(
            flag,
            [sampling = sampling_, add](const Texts& texts) {
              for (const std::string& text : texts) add(*sampling, text);
            },
            help)
        ->allow_extra_args(false);
  }

 private:
  CLI::App& command_;
  v1::Sampling* const sampling_;
};

}  // namespace

void DeclareSampling(CLI::App& command, v1::Sampling& sampling) {
  using S = v1::Sampling;
  Flags flags(command, sampling);
  flags.Add("--temperature,-t", &S::set_temperature, "0 takes the most likely token");
  flags.Add("--top-k", &S::set_top_k, "Only the k most likely tokens; 0: all");
  flags.Add("--top-p", &S::set_top_p, "Only the most likely tokens of this total");
  flags.Add("--min-p", &S::set_min_p, "Only tokens of this share of the most likely one");
  flags.Add("--typical-p", &S::set_typical_p,
            "Only the tokens of this total that surprise about as much as is expected");
  flags.Add("--mirostat-tau", &S::set_mirostat_tau,
            "Mirostat, in the place of the four above: the surprise to aim at, in bits, like 5");
  flags.Add("--mirostat-eta", &S::set_mirostat_eta, "How fast mirostat adapts; default: 0.1");
  flags.Add("--repetition-penalty", &S::set_repetition_penalty,
            "Above 1: fewer tokens of prompt and answer again; 0.01 to 100");
  flags.Add("--presence-penalty", &S::set_presence_penalty,
            "Above 0: fewer tokens of the answer again");
  flags.Add("--frequency-penalty", &S::set_frequency_penalty,
            "Above 0: the fewer, the more often a token stands in the answer");
  flags.Add("--dry-multiplier", &S::set_dry_multiplier,
            "DRY, against repeats: what one of --dry-allowed-length tokens costs, like 0.8");
  flags.Add("--dry-base", &S::set_dry_base,
            "How much more each further token costs; default: 1.75");
  flags.Add("--dry-allowed-length", &S::set_dry_allowed_length,
            "Shorter repeats cost nothing; default: 2");
  flags.Add("--dry-last-n", &S::set_dry_last_n,
            "Repeats of this many last tokens; default: -1, of all");
  flags.AddRepeated(
      "--dry-breaker",
      [](S& s, const std::string& text) {
        s.mutable_dry_breakers();
        if (!text.empty()) s.mutable_dry_breakers()->add_breaker(text);
      },
      "No repeat reaches over this text; may be given again; '' alone: none. Default: newline, "
      "colon, quote and asterisk");
  flags
      .AddRepeated(
          "--logit-bias",
          [](S& s, const std::string& text) {
            const auto [id, bias] = ParseBias(text).value();
            v1::TokenBias& added = *s.add_logit_bias();
            added.set_id(id);
            added.set_bias(bias);
          },
          "ID=BIAS: add -100 to 100 to this token's logit; may be given again")
      ->check(CheckBias);
  flags.Add("--min-tokens", &S::set_min_tokens, "No end of the text before so many tokens");
  command.add_flag_callback(
      "--ignore-eos", [&sampling] { sampling.set_ignore_eos(true); },
      "Go on after the model's end of the text, to --max-tokens");
  flags.Add("--seed", &S::set_seed, "The same seed gives the same answer; default: random");
  flags.Add("--logprobs", &S::set_logprobs,
            "Log probabilities of each token and of this many alternatives, to stderr");
}

}  // namespace skein::client
