// The scalar sampling parameters as a table: their names in the API and on the command line, and
// their ranges. Whatever carries or checks parameters walks over it, so that a new one is
//   1. a field of skein.v1.Sampling (proto/inference.proto),
//   2. a member of SamplingParams,
//   3. a row here,
//   4. its use in kernels/sampling.
// tests/integration/sampling_parameter_test.cc adds one, and finds that nothing else knows them.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "serving/sampling_params.h"

namespace skein::serving {

// `name` is the field's in skein.v1.Sampling and, with dashes, the flag of `skein generate`. A
// request's value is in [low, high], without `low` where it is open.
template <typename Params, typename T>
struct SamplingField {
  std::string_view name;
  T Params::* member;
  T low;
  T high;
  bool open;
  std::string_view help;
};

// Tables have a type for what they describe and a walk over its rows, so that code over them can be
// instantiated for another one.
struct SamplingFields {
  using Params = SamplingParams;

  // Calls visit(SamplingField<Params, T>) for each parameter, in the order of help texts.
  template <typename Visit>
  static void ForEach(Visit&& visit) {
    using P = SamplingParams;
    using Float = SamplingField<P, float>;
    using Int = SamplingField<P, int32_t>;
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    constexpr bool kClosed = false;
    constexpr bool kOpen = true;
    visit(Float{"temperature", &P::temperature, 0, 100, kClosed, "0 takes the most likely token"});
    visit(Int{"top_k", &P::top_k, 0, kMost, kClosed, "Only the k most likely tokens; 0: all"});
    visit(Float{"top_p", &P::top_p, 0, 1, kOpen, "Only the most likely tokens of this total"});
    visit(Float{"min_p", &P::min_p, 0, 1, kClosed,
                "Only tokens of this share of the most likely one"});
    visit(Float{"typical_p", &P::typical_p, 0, 1, kOpen,
                "Only the tokens of this total that surprise about as much as is expected"});
    visit(Float{"mirostat_tau", &P::mirostat_tau, 0, 100, kClosed,
                "Mirostat, in the place of the four above: the surprise to aim at, in bits, "
                "like 5"});
    visit(Float{"mirostat_eta", &P::mirostat_eta, 0, 1, kClosed,
                "How fast mirostat adapts; default: 0.1"});
    // Logits are divided by it, and must stay finite.
    visit(Float{"repetition_penalty", &P::repetition_penalty, 0.01f, 100, kClosed,
                "Above 1: fewer tokens of prompt and answer again; 0.01 to 100"});
    visit(Float{"presence_penalty", &P::presence_penalty, -100, 100, kClosed,
                "Above 0: fewer tokens of the answer again"});
    visit(Float{"frequency_penalty", &P::frequency_penalty, -100, 100, kClosed,
                "Above 0: the fewer, the more often a token stands in the answer"});
    visit(Float{"dry_multiplier", &P::dry_multiplier, 0, 100, kClosed,
                "DRY, against repeats: what one of --dry-allowed-length tokens costs, like 0.8"});
    visit(Float{"dry_base", &P::dry_base, 1, 100, kClosed,
                "How much more each further token costs; default: 1.75"});
    visit(Int{"dry_allowed_length", &P::dry_allowed_length, 1, kMost, kClosed,
              "Shorter repeats cost nothing; default: 2"});
    visit(Int{"dry_last_n", &P::dry_last_n, -1, kMost, kClosed,
              "Repeats of this many last tokens; default: -1, of all"});
    visit(Int{"min_tokens", &P::min_tokens, 0, kMost, kClosed,
              "No end of the text before so many tokens"});
    visit(SamplingField<P, uint64_t>{"seed", &P::seed, 0, std::numeric_limits<uint64_t>::max(),
                                     kClosed,
                                     "The same seed gives the same answer; default: random"});
    visit(Int{"logprobs", &P::logprobs, 0, 20, kClosed,
              "Log probabilities of each token and of this many alternatives, to stderr"});
  }
};

}  // namespace skein::serving
