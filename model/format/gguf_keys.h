// Names in GGUF files that more than one reader asks for.
#pragma once

#include <cstdint>
#include <string_view>

namespace skein::model {

inline constexpr std::string_view kGgufArchitecture = "general.architecture";
inline constexpr std::string_view kGgufFileType = "general.file_type";
inline constexpr std::string_view kGgufQuantizationVersion = "general.quantization_version";
inline constexpr std::string_view kGgufChatTemplate = "tokenizer.chat_template";
inline constexpr std::string_view kGgufTokenizer = "tokenizer.ggml.model";
inline constexpr std::string_view kGgufPreTokenizer = "tokenizer.ggml.pre";
inline constexpr std::string_view kGgufTokens = "tokenizer.ggml.tokens";
inline constexpr std::string_view kGgufTokenTypes = "tokenizer.ggml.token_type";
inline constexpr std::string_view kGgufBosId = "tokenizer.ggml.bos_token_id";
inline constexpr std::string_view kGgufEosId = "tokenizer.ggml.eos_token_id";

// A tensor: what the rotary embedding's frequencies are divided by.
inline constexpr std::string_view kGgufRopeDivisors = "rope_freqs.weight";
inline constexpr std::string_view kGgufShortDivisors = "rope_factors_short.weight";
inline constexpr std::string_view kGgufLongDivisors = "rope_factors_long.weight";

// The numbers of kGgufTokenTypes.
enum GgufTokenType : int64_t {
  kNormalToken = 1,
  kUnknownToken = 2,
  kControlToken = 3,
  kUserDefinedToken = 4,
  kUnusedToken = 5,
  kByteToken = 6,
};

}  // namespace skein::model
