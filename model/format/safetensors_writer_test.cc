#include "model/format/safetensors_writer.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/test_util.h"
#include "model/format/open.h"
#include "model/format/test_files.h"
#include "model/synthetic/synthetic.h"

namespace skein::model {
namespace {

using ::testing::HasSubstr;

// Tensors of given shapes that hold 0, 1, 2, ... as bytes.
class CountingSource final : public TensorSource {
 public:
  explicit CountingSource(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}
  std::string_view description() const override { return "counting"; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo&, absl::Span<const Range>,
                           absl::Span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i);
    return absl::OkStatus();
  }

 private:
  std::vector<TensorInfo> tensors_;
};

void ExpectEqualSources(const TensorSource& actual, const TensorSource& expected) {
  ASSERT_EQ(actual.tensors().size(), expected.tensors().size());
  for (size_t i = 0; i < expected.tensors().size(); ++i) {
    const TensorInfo& a = actual.tensors()[i];
    const TensorInfo& b = expected.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.shape, b.shape);
    std::vector<Range> whole;
    for (int64_t size : b.shape) whole.push_back({0, size});
    std::vector<std::byte> a_bytes(static_cast<size_t>(DTypeBytes(b.dtype, b.elements())));
    std::vector<std::byte> b_bytes(a_bytes.size());
    SKEIN_ASSERT_OK(actual.Read(a, whole, absl::MakeSpan(a_bytes)));
    SKEIN_ASSERT_OK(expected.Read(b, whole, absl::MakeSpan(b_bytes)));
    EXPECT_TRUE(a_bytes == b_bytes) << b.name;
  }
}

TEST(SafetensorsWriterTest, TheBytesAreWhatTheFormatSays) {
  const CountingSource source({{"a", DType::kF32, {2}}, {"b", DType::kBF16, {}}});
  const std::string folder = FreshFolder();
  SKEIN_ASSERT_OK(WriteSafetensors(source, folder));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string bytes,
                             ReadFile(folder + "/model.safetensors", 1 << 20));
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"data_offsets":[0,8],"dtype":"F32","shape":[2]},)"
                       R"("b":{"data_offsets":[8,10],"dtype":"BF16","shape":[]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(bytes, SafetensorsBytes(header, std::string("\0\1\2\3\4\5\6\7\0\1", 10)));
}

TEST(SafetensorsWriterTest, AWholeModelReadsBack) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  const struct {
    int64_t max_shard_bytes;
    size_t files;
  } kCases[] = {{1 << 30, 1}, {1'000'000, 3}, {1, 75}};
  for (const auto& test : kCases) {
    const std::string folder = FreshFolder() + "/made";
    SKEIN_ASSERT_OK(WriteModelFolder(model.config, *model.weights, folder, test.max_shard_bytes));
    SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig config, LoadModelConfig(folder));
    EXPECT_EQ(config, model.config);
    SKEIN_ASSERT_OK_AND_ASSIGN(auto source, OpenTensorSource(folder));
    EXPECT_EQ(source->files().size(), test.files);
    ExpectEqualSources(*source, *model.weights);
  }
}

TEST(SafetensorsWriterTest, ShardsReplaceASingleFile) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  const std::string folder = FreshFolder();
  SKEIN_ASSERT_OK(WriteSafetensors(CountingSource({{"a", DType::kF32, {2}}}), folder));
  SKEIN_ASSERT_OK(WriteSafetensors(*model.weights, folder, 1'000'000));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto source, OpenTensorSource(folder));
  EXPECT_EQ(source->tensors().size(), model.weights->tensors().size());
}

TEST(SafetensorsWriterTest, OddShapes) {
  const CountingSource source({{"empty", DType::kF32, {0, 5}},
                               {"long row", DType::kBF16, {2, 10'000'000}},
                               {"odd", DType::kF16, {3, 7, 5}},
                               {"scalar", DType::kF32, {}}});
  const std::string folder = FreshFolder();
  SKEIN_ASSERT_OK(WriteSafetensors(source, folder));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto read, OpenTensorSource(folder));
  ASSERT_EQ(read->tensors().size(), 4u);
  EXPECT_EQ(read->tensors()[1].shape, (std::vector<int64_t>{2, 10'000'000}));
}

TEST(SafetensorsWriterTest, ErrorsNameTheFile) {
  const CountingSource source({{"a", DType::kF32, {2}}});
  EXPECT_THAT(WriteSafetensors(source, "/nonexistent"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/model.safetensors")));
  // A device that is always full.
  const std::string folder = FreshFolder();
  std::filesystem::create_symlink("/dev/full", folder + "/model.safetensors");
  EXPECT_THAT(WriteSafetensors(source, folder),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(folder)));
}

}  // namespace
}  // namespace skein::model
