#include "client/sampling_flags.h"

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

// Each time that the flag is given adds one.
template <typename Function>
CLI::Option* AddRepeated(CLI::App& command, const char* flag, Function add, const char* help) {
  using Texts = std::vector<std::string>;
  return command
      .add_option_function<Texts>(
          flag,
          [add](const Texts& texts) {
            for (const std::string& text : texts) add(text);
          },
          help)
      ->allow_extra_args(false);
}

}  // namespace

void DeclareSampling(CLI::App& command, v1::Sampling& sampling) {
  DeclareScalars(command, sampling);
  AddRepeated(
      command, "--dry-breaker",
      [&sampling](const std::string& text) {
        v1::DryBreakers& breakers = *sampling.mutable_dry_breakers();
        if (!text.empty()) breakers.add_breaker(text);
      },
      "No repeat reaches over this text; may be given again; '' alone: none. Default: newline, "
      "colon, quote and asterisk");
  AddRepeated(
      command, "--logit-bias",
      [&sampling](const std::string& text) {
        const auto [id, bias] = ParseBias(text).value();
        v1::TokenBias& added = *sampling.add_logit_bias();
        added.set_id(id);
        added.set_bias(bias);
      },
      "ID=BIAS: add -100 to 100 to this token's logit; may be given again")
      ->check(CheckBias);
  command.add_flag_callback(
      "--ignore-eos", [&sampling] { sampling.set_ignore_eos(true); },
      "Go on after the model's end of the text, to --max-tokens");
}

void DeclareModelAndLength(CLI::App& command, v1::GenerateRequest& request) {
  command.add_option_function<std::string>(
      "--model", [&](const std::string& name) { request.set_model(name); },
      "One that the coordinator serves; default: the only one");
  command
      .add_option_function<uint32_t>(
          "--max-tokens", [&](uint32_t count) { request.set_max_tokens(count); },
          "Tokens of an answer at most; default: what the context has left")
      ->check(InRange<uint32_t>());
}

}  // namespace skein::client
