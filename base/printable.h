// Text from strangers, made fit for logs, status and errors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skein {

inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTextBytes = 1024;  // of one sentence or two

// `text` on one line that no terminal obeys: control characters (C0, C1, line separators, those
// that change the direction of text) and bytes that are no UTF-8 are written as \x1b. A result that
// would be longer than max_bytes (at least 8) is cut between characters and ends with "...".
// Costs no more than max_bytes, however long the text is.
std::string Printable(std::string_view text, size_t max_bytes = kMaxTextBytes);
// The same with line feeds left as they are.
std::string PrintableLines(std::string_view text, size_t max_bytes);

}  // namespace skein
