#include "text/tokenizer/post_processor.h"

#include <fmt/format.h>

#include "text/tokenizer/vocabulary.h"

namespace nunspark::text {
namespace {
constexpr size_t kItemsMax = 1024;
constexpr size_t kTextsMax = 8;  // of a template; real ones have each text once
}  // namespace

Result<PostProcessor> PostProcessor::FromJson(const JsonSection& section) {
  PostProcessor processor;
  RETURN_IF_ERROR(processor.Read(section, 0));
  return processor;
}

PostProcessor PostProcessor::Surround(std::vector<TokenId> before, std::vector<TokenId> after) {
  PostProcessor processor;
  const Item open{Item::Kind::kSpecials, std::move(before)};
  const Item close{Item::Kind::kSpecials, std::move(after)};
  const Item text_a{Item::Kind::kTextA, {}};
  const Item text_b{Item::Kind::kTextB, {}};
  processor.single_ = {open, text_a, close};
  processor.pair_ = {open, text_a, close, open, text_b, close};
  processor.has_template_ = true;
  return processor;
}

Status PostProcessor::Read(const JsonSection& section, int depth) {
  if (depth > kStepDepthMax) return section.Malformed("nested too deeply");
  ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "ByteLevel") return Status();  // changes offsets only
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> parts, section.Array("processors", kItemsMax));
    for (const JsonSection& part : parts) RETURN_IF_ERROR(Read(part, depth + 1));
    return Status();
  }
  if (has_template_) return section.Unsupported("a second template in one sequence has no defined meaning");
  has_template_ = true;
  if (type == "TemplateProcessing") return ReadTemplates(section);
  if (type == "BertProcessing") return ReadClsSep(section, 1);
  if (type == "RobertaProcessing") return ReadClsSep(section, 2);
  return section.Unsupported(fmt::format("this build does not know the post-processor '{}'", type));
}

Status PostProcessor::ReadTemplates(const JsonSection& section) {
  ASSIGN_OR_RETURN(single_, ReadTemplate(section, "single"));
  for (const Item& item : single_) {
    if (item.kind == Item::Kind::kTextB) return section.Malformed("single: expected the sequence A only, found B");
  }
  ASSIGN_OR_RETURN(pair_, ReadTemplate(section, "pair"));
  return Status();
}

Result<PostProcessor::Template> PostProcessor::ReadTemplate(const JsonSection& section, std::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<JsonSection> parts, section.Array(key, kItemsMax));
  const std::optional<JsonSection> specials = section.Member("special_tokens");
  Template items;
  size_t text_count = 0;
  for (const JsonSection& part : parts) {
    if (const std::optional<JsonSection> sequence = part.Member("Sequence")) {
      ASSIGN_OR_RETURN(const std::string name, sequence->Character("id"));
      const char letter = name.front();
      if (letter != 'A' && letter != 'B') return sequence->Malformed("id: expected A or B, found another letter");
      if (++text_count > kTextsMax) return section.Malformed(fmt::format("{}: more than {} texts", key, kTextsMax));
      items.push_back({letter == 'A' ? Item::Kind::kTextA : Item::Kind::kTextB, {}});
      continue;
    }
    ASSIGN_OR_RETURN(const JsonSection special, part.Required("SpecialToken"));
    ASSIGN_OR_RETURN(const std::string id, special.String("id"));
    if (!specials.has_value() || !specials->Member(id).has_value()) {
      return special.Malformed(fmt::format("expected '{}' among special_tokens, found none", id));
    }
    ASSIGN_OR_RETURN(const std::vector<JsonSection> ids, specials->Member(id)->Array("ids", kItemsMax));
    Item item{Item::Kind::kSpecials, {}};
    for (const JsonSection& one : ids) {
      if (!one.value().is_int() || one.value().as_int() < 0 || one.value().as_int() > kVocabIdMax) {
        return one.Malformed("expected a token id");
      }
      item.ids.push_back(static_cast<TokenId>(one.value().as_int()));
    }
    items.push_back(std::move(item));
  }
  return items;
}

Status PostProcessor::ReadClsSep(const JsonSection& section, int separators_between) {
  const auto read_id = [&section](std::string_view key) -> Result<TokenId> {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> token, section.Array(key, 2));
    if (token.size() != 2 || !token[1].value().is_int() || token[1].value().as_int() < 0 ||
        token[1].value().as_int() > kVocabIdMax) {
      return section.Malformed(fmt::format("{}: expected a token and its id", key));
    }
    return static_cast<TokenId>(token[1].value().as_int());
  };
  ASSIGN_OR_RETURN(const TokenId cls, read_id("cls"));
  ASSIGN_OR_RETURN(const TokenId sep, read_id("sep"));
  const Item open{Item::Kind::kSpecials, {cls}};
  const Item close{Item::Kind::kSpecials, {sep}};
  const Item between{Item::Kind::kSpecials, std::vector<TokenId>(static_cast<size_t>(separators_between), sep)};
  single_ = {open, {Item::Kind::kTextA, {}}, close};
  pair_ = {open, {Item::Kind::kTextA, {}}, between, {Item::Kind::kTextB, {}}, close};
  return Status();
}

void PostProcessor::Run(std::span<const TokenId> a, AddSpecials add_specials, std::vector<TokenId>& out) const {
  Fill(single_, a, {}, add_specials, out);
}

void PostProcessor::RunPair(std::span<const TokenId> a, std::span<const TokenId> b, AddSpecials add_specials,
                            std::vector<TokenId>& out) const {
  Fill(pair_, a, b, add_specials, out);
}

void PostProcessor::Fill(const Template& items, std::span<const TokenId> a, std::span<const TokenId> b,
                         AddSpecials add_specials, std::vector<TokenId>& out) {
  for (const Item& item : items) {
    switch (item.kind) {
      case Item::Kind::kTextA: out.insert(out.end(), a.begin(), a.end()); break;
      case Item::Kind::kTextB: out.insert(out.end(), b.begin(), b.end()); break;
      case Item::Kind::kSpecials:
        if (add_specials == AddSpecials::kYes) out.insert(out.end(), item.ids.begin(), item.ids.end());
        break;
    }
  }
}

}  // namespace nunspark::text
