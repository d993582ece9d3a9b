// Phi-3 and Phi-4: joined projections, a part of each head rotated, LongRoPE.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults = {.rms_norm_eps = 1e-5,
                                    .partial_rotary = true,
                                    .original_context = 4096,
                                    .yarn_is_longrope = true};
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  config.joined_projections = true;
  int64_t window = 0;
  reader.Int("sliding_window", 1, kMaxPositions, &window);
  SetWindows(window, [](int64_t) { return true; }, config);
  ReadRope(reader, defaults, config);
}

}  // namespace

constexpr std::string_view kKeys[] = {"attention.sliding_window"};

const Architecture kPhi3 = {"Phi3ForCausalLM", "phi3", "phi3", Read, nullptr, kKeys};

}  // namespace skein::model
