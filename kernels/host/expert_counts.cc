#include "kernels/host/expert_counts.h"

namespace skein::kernels {

ExpertCounts::ExpertCounts(const Program& program) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto* route = OpAt<RouteOp>(program, i);
    if (route == nullptr) continue;
    auto layer = std::make_unique<Layer>();
    layer->layer = i < program.op_layers.size() ? program.op_layers[i] : -1;
    layer->chosen = route->chosen;
    layer->of_experts =
        std::vector<std::atomic<int64_t>>(static_cast<size_t>(program.buffers[route->logits].cols));
    layers_.emplace(i, std::move(layer));
  }
}

void ExpertCounts::Add(size_t at, const float* routes, int64_t rows) {
  Layer& layer = *layers_.at(at);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < layer.chosen; ++i) {
      const auto expert = static_cast<size_t>(routes[row * 2 * layer.chosen + i]);
      layer.of_experts[expert].fetch_add(1, std::memory_order_relaxed);
    }
  }
  layer.rows.fetch_add(rows, std::memory_order_relaxed);
}

std::optional<ExpertLoad> ExpertCounts::Load() const {
  std::optional<ExpertLoad> load;
  for (const auto& [at, layer] : layers_) {
    const int64_t rows = layer->rows.load(std::memory_order_relaxed);
    if (rows == 0) continue;
    const double average =
        static_cast<double>(rows * layer->chosen) / static_cast<double>(layer->of_experts.size());
    for (size_t expert = 0; expert < layer->of_experts.size(); ++expert) {
      const auto of_expert =
          static_cast<double>(layer->of_experts[expert].load(std::memory_order_relaxed));
      if (load && of_expert / average <= load->of_average) continue;
      load = {.rows = rows,
              .layer = layer->layer,
              .expert = static_cast<int32_t>(expert),
              .of_average = of_expert / average};
    }
  }
  return load;
}

}  // namespace skein::kernels
