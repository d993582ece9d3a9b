#include "model/template/lexer.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "model/template/characters.h"
#include "model/template/literals.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

// The largest that is published has 100 KB.
constexpr size_t kMaxSource = 1 << 20;

std::string NormalLineEnds(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
      out += '\n';
    } else {
      out += source[at];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Where things of a source are. Asked about rising offsets.
class Places {
 public:
  explicit Places(std::string_view source) : source_(source) {}
  Position Of(size_t offset) {
    for (; done_ < offset; ++done_) {
      const unsigned char byte = source_[done_];
      if (byte == '\n') {
        at_ = {at_.line + 1, 1};
      } else if ((byte & 0xC0) != 0x80) {
        ++at_.column;
      }
    }
    return at_;
  }

 private:
  std::string_view source_;
  size_t done_ = 0;
  Position at_;
};

size_t SpaceEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!IsSpace(ReadCodePoint(text, next))) break;
    at = next;
  }
  return at;
}

size_t SpaceBegin(std::string_view text, size_t least) {
  size_t end = text.size();
  while (end > least) {
    const size_t begin = PreviousCharacter(text, end);
    size_t at = begin;
    if (!IsSpace(ReadCodePoint(text, at))) break;
    end = begin;
  }
  return end;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source), places_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) SKEIN_RETURN_IF_ERROR(ReadData());
    tokens_.push_back({.kind = TokenKind::kEnd, .at = places_.Of(source_.size())});
    return std::move(tokens_);
  }

 private:
  absl::Status Error(size_t offset, std::string_view what) {
    return Locate(Invalid(what), places_.Of(offset));
  }
  absl::Status Unexpected(size_t offset, std::string_view what) {
    return Locate(Invalid("unexpected '", what, "'"), places_.Of(offset));
  }
  char Peek(size_t offset) const { return offset < source_.size() ? source_[offset] : '\0'; }
  bool Starts(size_t offset, std::string_view what) const {
    return source_.substr(std::min(offset, source_.size()), what.size()) == what;
  }
  void Add(TokenKind kind, size_t offset, std::string text = "") {
    tokens_.push_back({.kind = kind, .at = places_.Of(offset), .text = std::move(text)});
  }
  void MoveTo(size_t end) {
    if (end > at_) line_starts_ = source_[end - 1] == '\n';
    at_ = end;
  }

  absl::Status ReadData();
  absl::Status ReadComment();
  absl::Status ReadRaw(size_t begin_size);
  absl::Status ReadTag(TokenKind end_kind, std::string_view closing);
  absl::Status ReadTagToken();
  absl::Status ReadString();
  absl::Status ReadNumber();
  absl::Status ReadName();
  absl::Status ReadOperator();
  void AddData(size_t begin, size_t end, char sign, bool is_block);
  size_t RawBeginSize(size_t offset) const;
  size_t EndSize(size_t offset, std::string_view closing, bool is_block) const;

  std::string_view source_;
  Places places_;
  size_t at_ = 0;
  bool line_starts_ = true;  // what was read last ends a line
  std::string open_;         // brackets of the tag, waiting for these
  std::vector<Token> tokens_;
};

// Of text that a tag with this sign follows.
void Lexer::AddData(size_t begin, size_t end, char sign, bool is_block) {
  const std::string_view text = source_.substr(begin, end - begin);
  size_t keep = text.size();
  if (sign == '-') {
    keep = SpaceBegin(text, 0);
  } else if (sign != '+' && is_block) {
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starts_) && SpaceBegin(text, line) == line) keep = line;
  }
  if (keep > 0) Add(TokenKind::kData, begin, std::string(text.substr(0, keep)));
}

// The size of "{% raw %}" here, or 0.
size_t Lexer::RawBeginSize(size_t offset) const {
  size_t at = offset + 2;
  if (Peek(at) == '-' || Peek(at) == '+') ++at;
  at = SpaceEnd(source_, at);
  if (!Starts(at, "raw")) return 0;
  at = SpaceEnd(source_, at + 3);
  if (Starts(at, "-%}")) return SpaceEnd(source_, at + 3) - offset;
  return Starts(at, "%}") ? at + 2 - offset : 0;
}

size_t Lexer::EndSize(size_t offset, std::string_view closing, bool is_block) const {
  if (Peek(offset) == '-' && Starts(offset + 1, closing)) {
    return SpaceEnd(source_, offset + 1 + closing.size()) - offset;
  }
  if (is_block && Peek(offset) == '+' && Starts(offset + 1, closing)) return 1 + closing.size();
  if (!Starts(offset, closing)) return 0;
  return closing.size() + (is_block && Peek(offset + closing.size()) == '\n' ? 1 : 0);
}

absl::Status Lexer::ReadData() {
  size_t tag = at_;
  do {
    tag = source_.find('{', tag);
    if (tag == std::string_view::npos) {
      Add(TokenKind::kData, at_, std::string(source_.substr(at_)));
      at_ = source_.size();
      return absl::OkStatus();
    }
    const char next = Peek(tag + 1);
    if (next == '{' || next == '%' || next == '#') break;
    ++tag;
  } while (true);
  const char kind = source_[tag + 1];
  const char sign = Peek(tag + 2) == '-' || Peek(tag + 2) == '+' ? source_[tag + 2] : '\0';
  AddData(at_, tag, sign, kind != '{');
  at_ = tag;
  if (kind == '%') {
    if (const size_t size = RawBeginSize(tag); size > 0) return ReadRaw(size);
  }
  const size_t inside = tag + (sign == '\0' ? 2 : 3);
  if (kind == '#') {
    MoveTo(inside);
    return ReadComment();
  }
  Add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, tag);
  MoveTo(inside);
  return kind == '%' ? ReadTag(TokenKind::kBlockEnd, "%}") : ReadTag(TokenKind::kVariableEnd, "}}");
}

absl::Status Lexer::ReadComment() {
  if (at_ == source_.size()) return absl::OkStatus();
  const size_t close = source_.find("#}", at_);
  if (close == std::string_view::npos) return Error(at_, "a comment has no end");
  const bool has_sign = close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
  const size_t end = close - (has_sign ? 1 : 0);
  MoveTo(end + EndSize(end, "#}", true));
  return absl::OkStatus();
}

absl::Status Lexer::ReadRaw(size_t begin_size) {
  const size_t tag = at_;
  MoveTo(at_ + begin_size);
  if (at_ == source_.size()) return absl::OkStatus();
  for (size_t end = source_.find("{%", at_); end != std::string_view::npos;
       end = source_.find("{%", end + 1)) {
    size_t inside = end + 2;
    const char sign = Peek(inside) == '-' || Peek(inside) == '+' ? source_[inside] : '\0';
    inside = SpaceEnd(source_, inside + (sign == '\0' ? 0 : 1));
    if (!Starts(inside, "endraw")) continue;
    inside = SpaceEnd(source_, inside + 6);
    const size_t size = EndSize(inside, "%}", true);
    if (size == 0) continue;
    AddData(at_, end, sign, true);
    MoveTo(inside + size);
    return absl::OkStatus();
  }
  return Error(tag, "a raw block has no end");
}

absl::Status Lexer::ReadTag(TokenKind end_kind, std::string_view closing) {
  open_.clear();
  while (at_ < source_.size()) {
    if (open_.empty()) {
      const size_t size = EndSize(at_, closing, end_kind == TokenKind::kBlockEnd);
      if (size > 0) {
        Add(end_kind, at_);
        MoveTo(at_ + size);
        return absl::OkStatus();
      }
    }
    SKEIN_RETURN_IF_ERROR(ReadTagToken());
  }
  return absl::OkStatus();  // the parser says what is missing
}

absl::Status Lexer::ReadTagToken() {
  const size_t space = SpaceEnd(source_, at_);
  if (space > at_) {
    at_ = space;
    return absl::OkStatus();
  }
  size_t next = at_;
  const uint32_t character = ReadCodePoint(source_, next);
  if (character == '"' || character == '\'') return ReadString();
  if (character >= '0' && character <= '9') return ReadNumber();
  if (character == '_' || IsAlphanumeric(character)) return ReadName();
  return ReadOperator();
}

absl::Status Lexer::ReadString() {
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != source_[at_]) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) return Error(at_, "a string has no end");
  auto text = Unescape(source_.substr(at_ + 1, end - at_ - 1));
  if (!text.ok()) return Locate(text.status(), places_.Of(at_));
  Add(TokenKind::kString, at_, *std::move(text));
  at_ = end + 1;
  return absl::OkStatus();
}

absl::Status Lexer::ReadNumber() {
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  auto number = ReadNumberLiteral(source_.substr(at_), /*may_be_float=*/!after_dot);
  if (!number.ok()) return Locate(number.status(), places_.Of(at_));
  Add(number->is_float ? TokenKind::kFloat : TokenKind::kInteger, at_);
  tokens_.back().integer = number->integer;
  tokens_.back().number = number->number;
  at_ += number->size;
  return absl::OkStatus();
}

absl::Status Lexer::ReadName() {
  size_t end = at_;
  while (end < source_.size()) {
    size_t next = end;
    const uint32_t character = ReadCodePoint(source_, next);
    if (character != '_' && !IsAlphanumeric(character)) break;
    end = next;
  }
  size_t first = at_;
  if (const uint32_t character = ReadCodePoint(source_, first);
      character != '_' && !IsAlpha(character)) {
    return Error(at_, "a name begins with a digit");
  }
  Add(TokenKind::kName, at_, std::string(source_.substr(at_, end - at_)));
  at_ = end;
  return absl::OkStatus();
}

absl::Status Lexer::ReadOperator() {
  constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                             ">",  "<",  "=",  ".",  ":",  "|",  ","};
  const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                   [&](std::string_view name) { return Starts(at_, name); });
  if (found == std::end(kOperators)) {
    size_t end = at_;
    ReadCodePoint(source_, end);
    return Unexpected(at_, source_.substr(at_, end - at_));
  }
  if (*found == "(") open_ += ')';
  if (*found == "[") open_ += ']';
  if (*found == "{") open_ += '}';
  if (*found == ")" || *found == "]" || *found == "}") {
    if (open_.empty() || open_.back() != found->front()) {
      return Unexpected(at_, *found);
    }
    open_.pop_back();
  }
  Add(TokenKind::kOperator, at_, std::string(*found));
  at_ += found->size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxSource) {
    return Invalid("a template of ", source.size(), " bytes: more than ", kMaxSource);
  }
  const size_t invalid = FindInvalidUtf8(source);
  if (invalid != std::string_view::npos) {
    Places places(source);
    return Locate(Invalid("the template is not UTF-8"), places.Of(invalid));
  }
  const std::string text = NormalLineEnds(source);
  return Lexer(text).Run();
}

}  // namespace skein::model
