#include "parallel/cost/layer_work.h"

#include <algorithm>
#include <cmath>

#include "parallel/plan/shard.h"

namespace skein::cost {
namespace {

using model::ElementBytes;
using model::ModelConfig;

// The inner dimension behind a layer's attention, on the average of the layers, where so many of
// its experts count.
double InnerValues(const ModelConfig& model, int32_t tp_size, double experts) {
  const double share = ShareOfExperts(model);
  double inner = (1 - share) * static_cast<double>(plan::LargestFfn(model, tp_size));
  if (share > 0) {
    inner += share * (static_cast<double>(plan::LargestShared(model, tp_size)) +
                      experts * static_cast<double>(plan::LargestExperts(model, tp_size)) /
                          static_cast<double>(model.experts.count));
  }
  return inner;
}

}  // namespace

double SeenTokens(const ModelConfig& model, int64_t context) {
  if (model.windows.empty()) return static_cast<double>(context);
  double seen = 0;
  for (const int64_t window : model.windows) {
    seen += static_cast<double>(window > 0 ? std::min(window, context) : context);
  }
  return seen / static_cast<double>(model.windows.size());
}

double ShareOfExperts(const ModelConfig& model) {
  return static_cast<double>(model.LayersOfExperts()) / static_cast<double>(model.num_layers);
}

double TouchedExperts(const ModelConfig& model, int64_t rows) {
  const auto count = static_cast<double>(model.experts.count);
  if (count == 0) return 0;
  const double missed = 1 - static_cast<double>(model.experts.chosen) / count;
  return count * (1 - std::pow(missed, static_cast<double>(rows)));
}

double LayerValues(const ModelConfig& model, int32_t tp_size, double experts) {
  const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / tp_size);
  const int64_t heads = model.num_heads / tp_size;
  return static_cast<double>(model.hidden_size) *
         (static_cast<double>((2 * heads + 2 * kv_heads) * model.head_dim) +
          3 * InnerValues(model, tp_size, experts) +
          ShareOfExperts(model) * static_cast<double>(model.experts.count));
}

// In and out of each product, and of the norms.
double PassedValues(const ModelConfig& model, int32_t tp_size) {
  const auto chosen = static_cast<double>(model.experts.chosen);
  return (8 + 2 * ShareOfExperts(model) * chosen) * static_cast<double>(model.hidden_size) +
         static_cast<double>(2 * (model.num_heads + 2 * model.num_kv_heads) * model.head_dim /
                             tp_size) +
         3 * InnerValues(model, tp_size, chosen);
}

int64_t LayerWeightBytes(const ModelConfig& model, int32_t tp_size) {
  return static_cast<int64_t>(
      ElementBytes(model.LayerTypes()) *
      LayerValues(model, tp_size, static_cast<double>(model.experts.count)));
}

int64_t OutputWeightBytes(const ModelConfig& model, int32_t tp_size) {
  const int64_t values = (model.vocab_size + tp_size - 1) / tp_size * model.hidden_size;
  return static_cast<int64_t>(ElementBytes(model.OutputTypes()) * static_cast<double>(values));
}

}  // namespace skein::cost
