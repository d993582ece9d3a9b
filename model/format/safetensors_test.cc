#include "model/format/safetensors.h"

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "base/test_util.h"
#include "model/format/open.h"
#include "model/format/test_files.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

std::string RandomBytes(int64_t count) {
  std::mt19937 generator(static_cast<uint32_t>(count));
  std::string bytes(static_cast<size_t>(count), '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

// What a slice must hold: one element at a time, by its index.
std::string Gather(const std::string& data, const std::vector<int64_t>& shape, int64_t item_bytes,
                   const std::vector<Range>& slice) {
  std::string out;
  for (int64_t i = 0; i < Product(shape); ++i) {
    bool inside = true;
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t index = rest % shape[d];
      rest /= shape[d];
      inside &= index >= slice[d].begin && index < slice[d].end;
    }
    if (inside) out.append(data, static_cast<size_t>(i * item_bytes), item_bytes);
  }
  return out;
}

absl::StatusOr<std::string> ReadSlice(const TensorSource& source, std::string_view name,
                                      const std::vector<Range>& slice) {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* tensor, source.Find(name));
  int64_t elements = 1;
  for (const Range& range : slice) elements *= range.size();
  std::string out(static_cast<size_t>(DTypeBytes(tensor->dtype, elements)), '\0');
  SKEIN_RETURN_IF_ERROR(
      source.Read(*tensor, slice, {reinterpret_cast<std::byte*>(out.data()), out.size()}));
  return out;
}

std::unique_ptr<TensorSource> OpenOne(const std::vector<int64_t>& shape, const char* dtype,
                                      const std::string& data) {
  const json header = {
      {"t", {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {0, data.size()}}}}};
  const std::string path = FreshFolder() + "/one.safetensors";
  WriteTestFile(path, SafetensorsBytes(header.dump(), data));
  absl::StatusOr<std::unique_ptr<TensorSource>> source = OpenSafetensors(path);
  EXPECT_THAT(source, IsOk());
  return source.ok() ? *std::move(source) : nullptr;
}

TEST(SafetensorsTest, ReadsAnySlice) {
  const struct {
    std::vector<int64_t> shape;
    const char* dtype;
    int64_t item_bytes;
  } kCases[] = {
      {{}, "F32", 4},
      {{7}, "BF16", 2},
      {{5, 6}, "F16", 2},
      {{3, 4, 5}, "F32", 4},
      {{2, 3, 4, 5}, "BF16", 2},
      {{1, 9, 1}, "F32", 4},
      {{4, 0, 2}, "F32", 4},
      {{2, 2, 2, 2, 2}, "F32", 4},
      {{900, 700}, "BF16", 2},  // several windows of rows
      {{3, 300000}, "F32", 4},  // rows larger than a window
  };
  std::mt19937 generator(1);
  for (const auto& test : kCases) {
    const std::string data = RandomBytes(Product(test.shape) * test.item_bytes);
    const std::unique_ptr<TensorSource> source = OpenOne(test.shape, test.dtype, data);
    ASSERT_NE(source, nullptr);
    int64_t bytes_read = 0;
    for (int i = 0; i < (data.size() > 100000 ? 4 : 100); ++i) {
      std::vector<Range> slice;
      for (int64_t size : test.shape) {
        const int64_t begin = std::uniform_int_distribution<int64_t>(0, size)(generator);
        const int64_t end = std::uniform_int_distribution<int64_t>(begin, size)(generator);
        // Often whole, since whole dimensions are joined.
        slice.push_back(generator() % 3 == 0 ? Range{0, size} : Range{begin, end});
      }
      SKEIN_ASSERT_OK_AND_ASSIGN(std::string actual, ReadSlice(*source, "t", slice));
      const std::string expected = Gather(data, test.shape, test.item_bytes, slice);
      ASSERT_TRUE(actual == expected) << testing::PrintToString(test.shape) << " slice " << i;
      bytes_read += static_cast<int64_t>(expected.size());
    }
    EXPECT_EQ(source->bytes_read(), bytes_read);
  }
}

TEST(SafetensorsTest, ThreadsReadAtOnce) {
  const std::vector<int64_t> shape = {200, 300};
  const std::string data = RandomBytes(200 * 300 * 2);
  const std::unique_ptr<TensorSource> source = OpenOne(shape, "BF16", data);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<Range> slice = {{0, 200}, {t * 75, t * 75 + 75}};
      const std::string expected = Gather(data, shape, 2, slice);
      for (int i = 0; i < 50; ++i) {
        const absl::StatusOr<std::string> actual = ReadSlice(*source, "t", slice);
        ASSERT_THAT(actual, IsOk());
        ASSERT_TRUE(*actual == expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(source->bytes_read(), 4 * 50 * 200 * 75 * 2);
}

TEST(SafetensorsTest, WrongReadsAreRefused) {
  const std::unique_ptr<TensorSource> source = OpenOne({2, 3}, "F32", RandomBytes(24));
  const TensorInfo& tensor = source->tensors()[0];
  std::byte out[24];
  const struct {
    std::vector<Range> slice;
    size_t out_bytes;
    absl::StatusCode code;
    const char* says;
  } kCases[] = {
      {{{0, 2}}, 24, absl::StatusCode::kInvalidArgument, "1 ranges"},
      {{{0, 2}, {0, 4}}, 24, absl::StatusCode::kOutOfRange, "[0, 4) of dimension 1"},
      {{{-1, 2}, {0, 3}}, 24, absl::StatusCode::kOutOfRange, "[-1, 2) of dimension 0"},
      {{{2, 1}, {0, 3}}, 0, absl::StatusCode::kOutOfRange, "[2, 1)"},
      {{{0, 2}, {0, 3}}, 23, absl::StatusCode::kInvalidArgument, "24 bytes, the buffer for it 23"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(
        source->Read(tensor, test.slice, {out, test.out_bytes}),
        StatusIs(test.code, AllOf(HasSubstr("one.safetensors: tensor 't'"), HasSubstr(test.says))));
  }
  EXPECT_THAT(source->Find("u"), StatusIs(absl::StatusCode::kNotFound,
                                          AllOf(HasSubstr("one.safetensors"), HasSubstr("'u'"))));
  const TensorInfo foreign = {"t", DType::kF32, {20, 30}};
  EXPECT_THAT(source->Read(foreign, {{0, 1}, {0, 1}}, {out, 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another source's")));
  EXPECT_EQ(source->bytes_read(), 0);
}

TEST(SafetensorsTest, AFileThatShrinksIsDataLoss) {
  const std::string path = FreshFolder() + "/shrinks.safetensors";
  const std::string data = RandomBytes(8192);
  WriteTestFile(
      path,
      SafetensorsBytes(R"({"t":{"dtype":"F32","shape":[8,256],"data_offsets":[0,8192]}})", data));
  SKEIN_ASSERT_OK_AND_ASSIGN(std::unique_ptr<TensorSource> source, OpenSafetensors(path));
  std::filesystem::resize_file(path, 4096);
  EXPECT_THAT(ReadSlice(*source, "t", {{0, 8}, {0, 256}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("'t'"), HasSubstr("offset 4096"))));
  EXPECT_THAT(ReadSlice(*source, "t", {{0, 8}, {0, 2}}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("offset 4096")));
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string head, ReadSlice(*source, "t", {{0, 1}, {0, 256}}));
  EXPECT_EQ(head, data.substr(0, 1024));
}

// Two shards, a.safetensors with x and z, b.safetensors with y.
std::string ShardedFolder(const std::string& weight_map) {
  const std::string folder = FreshFolder();
  WriteTestFile(folder + "/a.safetensors",
                SafetensorsBytes(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                                     "x":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})",
                                 "zzzzxXxX"));
  WriteTestFile(folder + "/b.safetensors",
                SafetensorsBytes(R"({"y":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})", "yY"));
  WriteTestFile(folder + "/model.safetensors.index.json", weight_map);
  return folder;
}

TEST(SafetensorsTest, ReadsShards) {
  const std::string folder = ShardedFolder(
      R"({"metadata": {"total_size": 10},
          "weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}})");
  SKEIN_ASSERT_OK_AND_ASSIGN(std::unique_ptr<TensorSource> source, OpenTensorSource(folder));
  EXPECT_EQ(source->description(), folder);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : source->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("x", "y", "z"));
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string x, ReadSlice(*source, "x", {{0, 2}}));
  EXPECT_EQ(x, "xXxX");
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string y, ReadSlice(*source, "y", {}));
  EXPECT_EQ(y, "yY");
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string z, ReadSlice(*source, "z", {{0, 1}}));
  EXPECT_EQ(z, "zzzz");
  ASSERT_EQ(source->files().size(), 2u);
  EXPECT_EQ(source->files()[1].name, "b.safetensors");
  EXPECT_EQ(source->files()[1].size_bytes,
            static_cast<int64_t>(std::filesystem::file_size(folder + "/b.safetensors")));
}

TEST(SafetensorsTest, BadIndexesAreRefused) {
  const struct {
    const char* index;
    absl::StatusCode code;
    std::vector<const char*> says;
  } kCases[] = {
      {"", absl::StatusCode::kInvalidArgument, {"bad JSON"}},
      {"[]", absl::StatusCode::kInvalidArgument, {"weight_map"}},
      {R"({"weight_map": []})", absl::StatusCode::kInvalidArgument, {"weight_map"}},
      {R"({"weight_map": {}})", absl::StatusCode::kInvalidArgument, {"weight_map is empty"}},
      {R"({"weight_map": {"x": 1}})",
       absl::StatusCode::kInvalidArgument,
       {"'x'", "name of a file"}},
      {R"({"weight_map": {"x": "../a.safetensors"}})",
       absl::StatusCode::kInvalidArgument,
       {"'x'", "name of a file"}},
      {R"({"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}})",
       absl::StatusCode::kInvalidArgument,
       {"'x' appears twice"}},
      {R"({"weight_map": {"x": "c.safetensors"}})",
       absl::StatusCode::kNotFound,
       {"shard named by", "/c.safetensors"}},
      {R"({"weight_map": {"x": "a.safetensors"}})",
       absl::StatusCode::kInvalidArgument,
       {"does not put tensor 'z' into a.safetensors"}},
      {R"({"weight_map": {"w": "a.safetensors", "x": "a.safetensors", "z": "a.safetensors"}})",
       absl::StatusCode::kInvalidArgument,
       {"puts tensor 'w' into a.safetensors", "does not hold it"}},
      {R"({"weight_map": {"x": "b.safetensors", "y": "b.safetensors"}})",
       absl::StatusCode::kInvalidArgument,
       {"puts tensor 'x' into b.safetensors"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.index);
    const std::string folder = ShardedFolder(test.index);
    const absl::Status status = OpenSafetensors(folder).status();
    EXPECT_THAT(status, StatusIs(test.code, HasSubstr(folder + "/model.safetensors.index.json")));
    for (const char* part : test.says) EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

TEST(SafetensorsTest, WhatIsNoModelIsRefused) {
  const std::string folder = FreshFolder();
  EXPECT_THAT(OpenTensorSource(folder),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(folder), HasSubstr("model.safetensors.index.json"))));
  EXPECT_THAT(OpenTensorSource(folder + "/none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder + "/none")));
  EXPECT_THAT(OpenTensorSource(folder + "/x.gguf"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder + "/x.gguf")));
  std::filesystem::create_directory(folder + "/model.safetensors");
  EXPECT_THAT(OpenTensorSource(folder),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

}  // namespace
}  // namespace skein::model
