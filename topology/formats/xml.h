// XML that strangers wrote, within limits: what the readers of topologies share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pugixml.hpp"
#include "topology/cpus.h"

namespace skein::topology {

inline constexpr size_t kMostXmlBytes = size_t{1} << 20;
// The deepest files of machines have some 20. Readers may recurse as deep.
inline constexpr int kMostXmlDepth = 64;

// A file with one root element. Entities are never declared, and no other file is ever read.
class XmlFile {
 public:
  enum class Doctype : uint8_t {
    kRefused,
    kNamed,  // <!DOCTYPE root SYSTEM "name">, which is passed over
  };

  // `text` must outlive the file. InvalidArgument for what is no XML, another root than `root`,
  // more than a MiB, 64 levels, or 64 attributes of an element, an attribute that is twice there, a
  // doctype that declares anything. `what`, "a topology of NCCL", is for the errors.
  static absl::StatusOr<std::unique_ptr<XmlFile>> Parse(std::string_view text, const char* root,
                                                        const char* what, Doctype doctype);

  pugi::xml_node root() const { return document_.document_element(); }

  // "line N: what", with the line that `node` begins in. Costs a pass over the text.
  absl::Status Error(pugi::xml_node node, std::string_view what) const;
  std::string Where(pugi::xml_node node) const;  // "line N: "

  // Nothing where the node has no such attribute, or an empty one. An error for a value that is no
  // number or outside of least and most.
  absl::StatusOr<std::optional<int64_t>> Integer(pugi::xml_node node, const char* name,
                                                 int64_t least, int64_t most) const;
  // The same of a mask.
  absl::StatusOr<std::optional<Cpus>> Mask(pugi::xml_node node, const char* name) const;
  // An error where the node has none.
  absl::StatusOr<int64_t> RequiredInteger(pugi::xml_node node, const char* name, int64_t least,
                                          int64_t most) const;

 private:
  explicit XmlFile(std::string_view text) : text_(text) {}
  std::string LineAt(ptrdiff_t offset) const;
  absl::Status CheckStart(const char* root, const char* what, Doctype doctype) const;
  absl::Status CheckLimits() const;

  const std::string_view text_;
  pugi::xml_document document_;
};

// 'text', printable and cut, for errors.
std::string QuotedXml(std::string_view text);
// An attribute as it may be shown and kept; empty where there is none.
std::string PrintableAttribute(pugi::xml_node node, const char* name);

}  // namespace skein::topology
