#include "kernels/host/weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "kernels/ops/validate.h"

namespace skein::kernels {

class HostWeights::HostStaging final : public Staging {
 public:
  HostStaging(std::shared_ptr<Pool> pool, std::vector<std::byte> memory)
      : pool_(std::move(pool)), memory_(std::move(memory)) {}
  ~HostStaging() override {
    MutexLock lock(&pool_->mutex);
    pool_->free.push_back(std::move(memory_));
  }
  absl::Span<std::byte> bytes() override { return absl::MakeSpan(memory_); }

 private:
  const std::shared_ptr<Pool> pool_;
  std::vector<std::byte> memory_;
};

HostWeights::HostWeights(const Program& program)
    : Weights(program), pool_(std::make_shared<Pool>()) {}

absl::Status HostWeights::Allocate(int64_t (*bytes_of)(const WeightSpec&)) {
  offsets_ = {0};
  for (const auto& [name, spec] : specs()) {
    SKEIN_RETURN_IF_ERROR(Annotate(ValidateWeightSpec(spec), absl::StrCat("weight ", name)));
    offsets_.push_back(offsets_.back() + bytes_of(spec));
  }
  SKEIN_ASSIGN_OR_RETURN(memory_, HostMemory::Allocate(offsets_.back(), "weights",
                                                       /*huge_pages=*/true));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Staging>> HostWeights::Stage(int64_t bytes) {
  std::vector<std::byte> memory;
  {
    MutexLock lock(&pool_->mutex);
    if (!pool_->free.empty()) {
      memory = std::move(pool_->free.back());
      pool_->free.pop_back();
    }
  }
  memory.resize(bytes);
  return std::make_unique<HostStaging>(pool_, std::move(memory));
}

absl::Status HostWeights::Load(const WeightRows& rows, std::unique_ptr<Staging> staged) {
  const absl::Span<const std::byte> bytes = staged->bytes();
  SKEIN_RETURN_IF_ERROR(ValidateRows(specs(), rows, static_cast<int64_t>(bytes.size())));
  Pack(rows, bytes.data());
  return absl::OkStatus();
}

}  // namespace skein::kernels
