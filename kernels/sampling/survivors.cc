#include "kernels/sampling/survivors.h"

#include <algorithm>

#include "base/status_macros.h"
#include "kernels/sampling/candidates.h"
#include "kernels/sampling/penalties.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/truncation.h"

namespace skein::kernels {

absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const serving::SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output,
                                                        std::optional<float> mu) {
  SKEIN_ASSIGN_OR_RETURN(const serving::SampledToken drawn,
                         Sample(logits, params, prompt, output, output.size(), mu));
  if (params.temperature == 0.0f) return std::vector<TokenProbability>{{drawn.id, 1.0}};
  std::vector<float> adjusted(logits.begin(), logits.end());
  AdjustMemory memory;
  Adjust(params, prompt, output, output.size(), 0, absl::MakeSpan(adjusted), memory);
  Candidates candidates;
  RestrictRow(params, adjusted, *std::max_element(adjusted.begin(), adjusted.end()),
              mu.value_or(2 * params.mirostat_tau), candidates);
  std::vector<Candidate> list = candidates.list();
  std::erase_if(list, [](const Candidate& c) { return c.weight == 0; });
  std::sort(list.begin(), list.end(), Before);
  double sum = 0;
  for (const Candidate& c : list) sum += c.weight;
  std::vector<TokenProbability> survivors;
  for (const Candidate& c : list) survivors.push_back({c.id, c.weight / sum});
  return survivors;
}

}  // namespace skein::kernels
