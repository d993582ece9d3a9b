#include "kernels/cuda/attention_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

namespace skein::kernels::cuda {
namespace {

std::vector<int32_t> RowBegins(const std::vector<Piece>& pieces) {
  std::vector<int32_t> begins = {0};
  for (const Piece& piece : pieces) begins.push_back(begins.back() + piece.rows);
  return begins;
}

int64_t PagesOf(const Piece& piece, int32_t page_size) {
  return (piece.length + page_size - 1) / page_size;
}

int64_t LongestTable(const std::vector<Piece>& pieces, int32_t page_size) {
  int64_t longest = 1;
  for (const Piece& piece : pieces) longest = std::max(longest, PagesOf(piece, page_size));
  return longest;
}

// Twice as many as are used, and one.
int64_t CachePages(const std::vector<Piece>& pieces, int32_t page_size) {
  int64_t pages = 1;
  for (const Piece& piece : pieces) pages += 2 * PagesOf(piece, page_size);
  return pages;
}

std::vector<int32_t> Shuffled(int64_t count, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

std::vector<int32_t> LengthsBySlot(const std::vector<Piece>& pieces,
                                   const std::vector<int32_t>& slots) {
  std::vector<int32_t> lengths(slots.size());
  for (size_t s = 0; s < pieces.size(); ++s) lengths[slots[s]] = pieces[s].length;
  return lengths;
}

// -1 where a sequence has no page.
std::vector<int32_t> Tables(const std::vector<Piece>& pieces, const std::vector<int32_t>& slots,
                            int32_t page_size, uint32_t seed) {
  const int64_t stride = LongestTable(pieces, page_size);
  std::vector<int32_t> tables(slots.size() * static_cast<size_t>(stride), -1);
  const std::vector<int32_t> ids = Shuffled(CachePages(pieces, page_size), seed);
  size_t next = 0;
  for (size_t s = 0; s < pieces.size(); ++s) {
    for (int64_t p = 0; p < PagesOf(pieces[s], page_size); ++p) {
      tables[slots[s] * stride + p] = ids[next++];
    }
  }
  return tables;
}

int64_t CacheBytes(const AttentionShape& shape, const std::vector<Piece>& pieces) {
  const KvLayer kv = {nullptr, shape.kv_heads, shape.head_dim, shape.page_size, shape.int8};
  return CachePages(pieces, shape.page_size) * kv.PageBytes();
}

}  // namespace

float AttentionShape::scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

std::string AttentionShape::Name() const {
  return std::string(DTypeName(dtype)) + " heads " + std::to_string(heads) + "/" +
         std::to_string(kv_heads) + " x " + std::to_string(head_dim) + " page " +
         std::to_string(page_size) + " window " + std::to_string(window) + (int8 ? " int8" : "") +
         (values == 1 ? "" : " values to " + std::to_string(values));
}

std::vector<AttentionShape> AttentionShapes() {
  std::vector<AttentionShape> shapes;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int32_t head_dim : {64, 96, 128}) {
      for (int32_t page_size : {16, 64}) {
        for (int32_t window : {0, 1, 20, 100}) {
          shapes.push_back({dtype, 8, 2, head_dim, page_size, window});
        }
        for (int32_t window : {0, 1, 77}) {
          shapes.push_back({dtype, 4, 2, head_dim, page_size, window, true});
        }
      }
    }
  }
  for (int32_t group : {1, 2, 3, 5, 7, 8, 9, 12, 16}) {
    shapes.push_back({DType::kBF16, 3 * group, 3, 128, 16, 0});
    shapes.push_back({DType::kF16, group, 1, 64, 64, 30});
    shapes.push_back({DType::kBF16, 2 * group, 2, group % 2 == 0 ? 96 : 128, 16, 0, true});
  }
  shapes.push_back({DType::kBF16, 4, 2, 128, 48, 0});
  shapes.push_back({DType::kBF16, 4, 2, 64, 48, 0, true});
  // Whose scales are near the ends of f16's range.
  for (int32_t head_dim : {64, 96, 128}) {
    for (float values : {0x1p-11f, 0x1p15f}) {
      shapes.push_back({DType::kF16, 4, 2, head_dim, 16, 0, true, values});
    }
  }
  return shapes;
}

PagedProblem::PagedProblem(const AttentionShape& shape, std::vector<Piece> pieces, uint32_t seed)
    : shape_(shape),
      pieces_(std::move(pieces)),
      row_begin_(RowBegins(pieces_)),
      q_values_(RandomValues(seed, row_begin_.back() * q_stride(), shape.dtype, 4)),
      table_stride_(LongestTable(pieces_, shape.page_size)),
      cache_(CacheBytes(shape, pieces_)),
      q_on_device_(Encoded(shape.dtype, q_values_)),
      row_begin_on_device_(row_begin_),
      slots_(Shuffled(static_cast<int64_t>(pieces_.size()) + 2, seed + 1)),
      lengths_(LengthsBySlot(pieces_, slots_)),
      tables_(Tables(pieces_, slots_, shape.page_size, seed + 2)),
      slots_on_device_(slots_),
      lengths_on_device_(lengths_),
      tables_on_device_(tables_) {
  const int64_t vector = shape.head_dim;
  std::vector<char> cache(static_cast<size_t>(cache_.bytes()), '\xff');
  for (size_t s = 0; s < pieces_.size(); ++s) {
    const int64_t per_position = int64_t{shape.kv_heads} * 2 * vector;
    kv_values_.push_back(RandomValues(seed + 3 + static_cast<uint32_t>(s),
                                      pieces_[s].length * per_position, shape.dtype, 1));
    for (size_t i = 0; i < kv_values_[s].size(); ++i) {
      if (i / vector % 2 == 1) kv_values_[s][i] *= shape.values;
    }
    PlantNeedles(s);
    for (int64_t p = 0; p < pieces_[s].length; ++p) {
      const int64_t page = tables_[slots_[s] * table_stride_ + p / shape.page_size];
      const int offset = static_cast<int>(p % shape.page_size);
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int part = 0; part < 2; ++part) {
          Store(kv_values_[s].data() + p * per_position + (2 * h + part) * vector, page, h, offset,
                part, cache);
        }
      }
    }
  }
  cache_.Upload(cache.data(), cache_.bytes());
}

void PagedProblem::Store(float* vector, int64_t page, int head, int offset, int part,
                         std::vector<char>& cache) const {
  const int row = offset % kKvBlock;
  char* const block = cache.data() + kv().BlockByte(page, head, offset);
  char* const rows = block + part * KvValuesByte(shape_.head_dim, shape_.int8);
  if (!shape_.int8) {
    std::vector<uint16_t> stored(static_cast<size_t>(shape_.head_dim));
    ConvertFromFloat(shape_.dtype, vector, shape_.head_dim, stored.data());
    for (int chunk = 0; chunk < shape_.head_dim / kKvChunk; ++chunk) {
      std::memcpy(rows + 2 * KvChunkOffset(shape_.head_dim, row, chunk),
                  stored.data() + chunk * kKvChunk, 2 * kKvChunk);
    }
    return;
  }
  float scale = 0;
  for (int i = 0; i < shape_.head_dim; ++i) scale = std::max(scale, std::abs(vector[i]) / 127);
  std::memcpy(block + KvScalesByte(shape_.head_dim, part == 1) + row * 4, &scale, 4);
  for (int i = 0; i < shape_.head_dim; ++i) {
    const float steps = std::clamp(std::nearbyint(vector[i] / scale), -127.0f, 127.0f);
    vector[i] = steps * scale;
    rows[KvInt8Offset(shape_.head_dim, row, i)] = static_cast<char>(static_cast<int8_t>(steps));
  }
}

// A quarter of the query is a key whose score is about 1.3 * sqrt(head_dim): e^11 and more, as much
// as tens of thousands of other positions.
void PagedProblem::PlantNeedles(size_t sequence) {
  const int64_t d = shape_.head_dim;
  for (const int32_t position : pieces_[sequence].needles) {
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const float* query = q_values_.data() + (row_begin_[sequence + 1] - 1) * q_stride() +
                           h * (shape_.heads / shape_.kv_heads) * d;
      std::vector<float> key(query, query + d);
      for (float& x : key) x /= 4;
      std::ranges::copy(Rounded(shape_.dtype, std::move(key)),
                        kv_values_[sequence].begin() + (position * shape_.kv_heads + h) * 2 * d);
    }
  }
}

PagedBatch PagedProblem::batch() const {
  return {.sequences = static_cast<int32_t>(pieces_.size()),
          .row_begin = row_begin_on_device_.get(),
          .slots = slots_on_device_.get(),
          .lengths = lengths_on_device_.get(),
          .page_tables = tables_on_device_.get(),
          .page_table_stride = table_stride_};
}

KvLayer PagedProblem::kv() const {
  return {cache_.data(), shape_.kv_heads, shape_.head_dim, shape_.page_size, shape_.int8};
}

DeviceBytes PagedProblem::NewOut() const {
  return DeviceBytes(DTypeBytes(shape_.dtype, rows() * q_stride()));
}

const float* PagedProblem::KeyAt(int64_t sequence, int64_t position, int64_t kv_head) const {
  return kv_values_[sequence].data() +
         (position * shape_.kv_heads + kv_head) * 2 * int64_t{shape_.head_dim};
}

// Errors: scores are float sums of head_dim products by matrix instructions that keep 22 bits, and
// e^x has that relative error; weights are rounded to the dtype before they meet the values; the
// sums over positions are such instructions' again; the result is rounded. Of int8, scores and
// weights are multiplied with a scale each, in float, and it is the product of weight and scale
// that is rounded: where that is among the least numbers, its error is of the integer's size, of
// which F16 has 64ths; and queries may be rounded by 1 / 65,278 of their largest element.
void PagedProblem::Attend(int64_t sequence, int64_t row, int64_t head, Expected& expected) const {
  const Piece& piece = pieces_[sequence];
  const int64_t d = shape_.head_dim;
  const int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
  const int64_t position = piece.length - piece.rows + row;
  const int64_t first = shape_.window > 0 ? std::max<int64_t>(0, position + 1 - shape_.window) : 0;
  const float* query = q_values_.data() + (row_begin_[sequence] + row) * q_stride() + head * d;
  double largest_element = 0;
  for (int64_t i = 0; i < d; ++i) {
    largest_element = std::max(largest_element, std::abs(double{query[i]}));
  }
  std::vector<double> weights;
  double largest = -INFINITY;
  double most = 0;     // the largest sum of |q * k|
  double rounded = 0;  // the largest error of a score, by the query's
  for (int64_t p = first; p <= position; ++p) {
    const float* key = KeyAt(sequence, p, kv_head);
    double score = 0;
    double magnitude = 0;
    double lengths = 0;
    for (int64_t i = 0; i < d; ++i) {
      lengths += std::abs(double{key[i]});
      score += double{query[i]} * key[i];
      magnitude += std::abs(double{query[i]} * key[i]);
    }
    weights.push_back(score * shape_.scale());
    largest = std::max(largest, weights.back());
    most = std::max(most, magnitude * shape_.scale());
    if (shape_.int8) {
      rounded = std::max(rounded, lengths * largest_element / 65278 * shape_.scale());
    }
  }
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  const auto count = static_cast<double>(weights.size());
  const double relative =
      UnitRoundoff(shape_.dtype) + (shape_.int8 ? 2 * rounded + 4 * 0x1p-24 : 0) +
      2 * most * (static_cast<double>(d) / 16 + 2) * 0x1p-22 + (count / 16 + 16) * 0x1p-22;
  for (int64_t i = 0; i < d; ++i) {
    double sum = 0;
    double magnitude = 0;
    double values = 0;
    for (int64_t p = first; p <= position; ++p) {
      const double value = KeyAt(sequence, p, kv_head)[d + i];
      const double weight = weights[p - first] / total;
      sum += weight * value;
      magnitude += weight * std::abs(value);
      values += shape_.int8 ? 127 / (shape_.dtype == DType::kF16 ? 64.0 : 1.0) : std::abs(value);
    }
    expected.Add(sum, relative * magnitude + LeastError(shape_.dtype) * (1 + values / total) +
                          UnitRoundoff(shape_.dtype) * std::abs(sum));
  }
}

Expected PagedProblem::Reference(const std::vector<bool>& wanted) const {
  Expected expected;
  for (size_t s = 0; s < pieces_.size(); ++s) {
    for (int64_t r = 0; wanted[s] && r < pieces_[s].rows; ++r) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        Attend(static_cast<int64_t>(s), r, h, expected);
      }
    }
  }
  return expected;
}

std::vector<float> PagedProblem::Rows(const DeviceBytes& out,
                                      const std::vector<bool>& wanted) const {
  const std::vector<float> all = Decoded(shape_.dtype, out);
  std::vector<float> rows;
  for (size_t s = 0; s < pieces_.size(); ++s) {
    for (int64_t r = row_begin_[s]; wanted[s] && r < row_begin_[s + 1]; ++r) {
      const float* row = all.data() + r * q_stride();
      rows.insert(rows.end(), row, row + int64_t{shape_.heads} * shape_.head_dim);
    }
  }
  return rows;
}

bool PagedProblem::OthersAreUntouched(const DeviceBytes& out,
                                      const std::vector<bool>& wanted) const {
  std::vector<uint16_t> all(static_cast<size_t>(rows() * q_stride()));
  out.Download(all.data(), out.bytes());
  for (size_t s = 0; s < pieces_.size(); ++s) {
    for (int64_t r = row_begin_[s]; r < row_begin_[s + 1]; ++r) {
      const int64_t written = wanted[s] ? int64_t{shape_.heads} * shape_.head_dim : 0;
      for (int64_t i = written; i < q_stride(); ++i) {
        if (all[r * q_stride() + i] != 0xffff) return false;
      }
    }
  }
  return true;
}

std::vector<bool> PagedProblem::WithOneRow() const {
  std::vector<bool> one;
  for (const Piece& piece : pieces_) one.push_back(piece.rows == 1);
  return one;
}

std::vector<bool> PagedProblem::WithSeveralRows() const {
  std::vector<bool> several;
  for (const Piece& piece : pieces_) several.push_back(piece.rows > 1);
  return several;
}

}  // namespace skein::kernels::cuda
