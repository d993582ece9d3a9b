// Tensors that are joined in one weight may have unlike dtypes: what a wider one holds exactly
// gives the same bits.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

// Values and up projections of `source`, which are BF16 there, as F32.
class Widened final : public model::TensorSource {
 public:
  explicit Widened(const model::TensorSource& source) : source_(source) {
    for (model::TensorInfo info : source.tensors()) {
      if (IsWide(info.name)) info.dtype = DType::kF32;
      tensors_.push_back(std::move(info));
    }
  }
  std::string_view description() const override { return source_.description(); }
  absl::Span<const model::TensorInfo> tensors() const override { return tensors_; }

 private:
  static bool IsWide(const std::string& name) {
    return name.find("v_proj") != std::string::npos || name.find("up_proj") != std::string::npos;
  }
  absl::Status ReadChecked(const model::TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const model::TensorInfo* const stored = *source_.Find(tensor.name);
    if (stored->dtype == tensor.dtype) return source_.Read(*stored, slice, out);
    std::vector<std::byte> narrow(out.size() / 2);
    const absl::Status status = source_.Read(*stored, slice, absl::MakeSpan(narrow));
    ConvertToFloat(stored->dtype, narrow.data(), static_cast<int64_t>(out.size() / sizeof(float)),
                   reinterpret_cast<float*>(out.data()));
    return status;
  }

  const model::TensorSource& source_;
  std::vector<model::TensorInfo> tensors_;
};

TEST(MixedDTypesTest, GiveTheSameBits) {
  constexpr const char* kBard = "checkpoints/bard";
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tensors, model::OpenTensorSource(kBard));
  const Widened widened(*tensors);
  serving::Request request{
      .id = serving::RequestId(1), .prompt = {5, 6, 7, 8, 9, 10, 11}, .max_tokens = 6};
  request.sampling.temperature = 0;
  for (const plan::Layout& layout : {plan::Layout{1, 1, 1}, plan::Layout{2, 1, 1}}) {
    SCOPED_TRACE(layout.ToString());
    LocalReplica::Logits logits[2];
    for (int wide = 0; wide < 2; ++wide) {
      LocalReplicaOptions options{.layout = layout};
      options.make_backend = [] { return *kernels::MakeCpuBackend({.threads = 1}); };
      const model::TensorSource* const source = wide == 0 ? tensors.get() : &widened;
      SKEIN_ASSERT_OK_AND_ASSIGN(const auto replica,
                                 LocalReplica::Create(config, *source, options));
      SKEIN_ASSERT_OK(
          replica->Generate({request}, {.max_num_batched_tokens = 64, .max_micro_batch_rows = 64}));
      logits[wide] = replica->logits();
    }
    ASSERT_EQ(logits[0].size(), 6u);
    EXPECT_EQ(logits[0], logits[1]);
  }
}

}  // namespace
}  // namespace skein::worker
