#include "model/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/oniguruma.h"

namespace skein::model {
namespace {

// PCRE2 counts backtracking steps. Llama-3's pattern takes two for each space of a long run; 10
// million, PCRE2's default, are too few for 10 MiB of spaces.
constexpr uint64_t kMatchStepsPerByte = 16;
constexpr uint64_t kMatchStepsAtLeast = 1'000'000;
// For patterns that remember a place for each byte; those in use need none.
constexpr uint32_t kMatchHeapKiB = 256 << 10;

std::string Pcre2Error(int code) {
  std::array<PCRE2_UCHAR, 256> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::string EscapeLiteral(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (absl::ascii_ispunct(c)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

struct Free {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

// Finds matches of one expression, one after the other.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        match_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {}

  bool ok() const { return match_ != nullptr && context_ != nullptr; }

  void StartText(std::string_view text) {
    text_ = text;
    const uint64_t steps = kMatchStepsAtLeast + kMatchStepsPerByte * text.size();
    pcre2_set_match_limit(context_.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kMatchHeapKiB);
  }

  // The first match at `from` or later: a positive number, or PCRE2's error.
  int Find(size_t from) {
    int result = Match(from, 0);
    // Compiled code has 32 KiB of stack; interpreting takes memory from the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = Match(from, PCRE2_NO_JIT);
    return result;
  }

  size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

 private:
  int Match(size_t from, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                       options, match_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
  std::unique_ptr<pcre2_match_context, Free> context_;
  std::string_view text_;
};

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern, bool literal) {
  SKEIN_ASSIGN_OR_RETURN(
      BytePattern translated,
      TranslateOniguruma(literal ? EscapeLiteral(pattern) : std::string(pattern)));
  Regex regex(std::move(translated.symbols));
  regex.pattern_ = pattern;
  const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for an expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // the only one that Oniguruma has
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.pattern.data()),
                                  translated.pattern.size(), 0, &error, &offset, context.get()));
  if (regex.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression does not compile: ", Pcre2Error(error), " at offset ",
                     offset, " of ", translated.pattern));
  }
  // Where code must not be made at run time this fails, and matching interprets: same result.
  pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

bool Regex::MatchesEmpty() const {
  uint32_t matches = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches);
  return matches != 0;
}

absl::StatusOr<std::vector<std::string_view>> Regex::Cut(const std::vector<std::string_view>& texts,
                                                         bool keep_matches, bool keep_gaps) const {
  Matcher matcher(code_.get());
  if (!matcher.ok()) return absl::ResourceExhaustedError("no memory for a regular expression");
  std::vector<std::string_view> pieces;
  std::string buffer;
  for (const std::string_view text : texts) {
    const std::string_view symbols = symbols_.Write(text, buffer);
    TextOffsets offsets(text, symbols);
    size_t done = 0;  // text before it was cut
    const auto add = [&](size_t symbols_end, bool keep) {
      const size_t end = offsets.Of(symbols_end);
      if (keep && end > done) pieces.push_back(text.substr(done, end - done));
      done = end;
    };
    matcher.StartText(symbols);
    size_t from = 0;  // the next match begins here or later
    while (from < symbols.size()) {
      const int result = matcher.Find(from);
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the tokenizer's regular expression gave up at byte ", offsets.Of(from),
                         " of ", text.size(), " (", Pcre2Error(result), "): ", pattern_));
      }
      add(matcher.begin(), keep_gaps);
      add(matcher.end(), keep_matches);
      from = matcher.end() > matcher.begin() ? matcher.end() : matcher.end() + 1;
    }
    add(symbols.size(), keep_gaps);
  }
  return pieces;
}

}  // namespace skein::model
