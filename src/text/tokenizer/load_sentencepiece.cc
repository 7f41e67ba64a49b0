// SentencePiece's tokenizer.model: a protocol-buffer message of pieces, trainer and normalizer settings.
#include <fmt/format.h>

#include <cmath>

#include "base/utf8.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/protobuf.h"
#include "text/tokenizer/sentencepiece.h"

namespace nunspark::text {
namespace {

using Kind = SpmPiece::Kind;
using Wire = ProtoField::Wire;

enum class Algorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct Settings {
  std::vector<SpmPiece> pieces;
  int64_t algorithm = 1;
  bool byte_fallback = false;
  std::string unknown_surface = " \xE2\x81\x87 ";  // U+2047 between spaces, the library's default
  std::string charsmap;
  SpmNormalizerOptions normalizer;
};

class Reader {
 public:
  Reader(std::string_view content, std::string_view what, const std::vector<ConfigToken>& tokens)
      : content_(content), what_(what), tokens_(tokens) {}

  Result<std::unique_ptr<PipelineTokenizer>> Read() {
    RETURN_IF_ERROR(ReadModel());
    RETURN_IF_ERROR(CheckPieces());
    return Assemble();
  }

 private:
  Status Malformed(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }

  // Calls read(field) for every field of a message.
  template <typename ReadField>
  Status ForEach(std::string_view message, std::string_view name, ReadField read) const {
    ProtoReader reader(message);
    while (const std::optional<ProtoField> field = reader.Next()) RETURN_IF_ERROR(read(*field));
    if (reader.malformed()) return Malformed(fmt::format("{}: not a valid protocol-buffer message", name));
    return Status();
  }

  Status Expect(const ProtoField& field, Wire wire, std::string_view place) const {
    if (field.wire == wire) return Status();
    return Malformed(fmt::format("{}: field {} is of another kind than expected", place, field.number));
  }

  Status ReadModel() {
    return ForEach(content_, "the model", [this](const ProtoField& field) -> Status {
      if (field.number < 1 || field.number > 3) return Status();
      RETURN_IF_ERROR(Expect(field, Wire::kBytes, "the model"));
      if (field.number == 1) return ReadPiece(field.bytes);
      return field.number == 2 ? ReadTrainer(field.bytes) : ReadNormalizer(field.bytes);
    });
  }

  Status ReadPiece(std::string_view message) {
    if (settings_.pieces.size() > static_cast<size_t>(kVocabIdMax)) {
      return Malformed(fmt::format("expected at most {} pieces, found more", kVocabIdMax));
    }
    const std::string place = fmt::format("piece {}", settings_.pieces.size());
    SpmPiece piece;
    const auto read_field = [&](const ProtoField& field) -> Status {
      if (field.number == 1) {
        RETURN_IF_ERROR(Expect(field, Wire::kBytes, place));
        piece.text = field.bytes;
      } else if (field.number == 2) {
        RETURN_IF_ERROR(Expect(field, Wire::kFixed32, place));
        piece.score = field.AsFloat();
      } else if (field.number == 3) {
        RETURN_IF_ERROR(Expect(field, Wire::kVarint, place));
        if (field.value < 1 || field.value > 6) {
          return Malformed(fmt::format("{}: expected a type from 1 to 6, found {}", place, field.value));
        }
        piece.kind = static_cast<Kind>(field.value);
      }
      return Status();
    };
    RETURN_IF_ERROR(ForEach(message, place, read_field));
    if (piece.text.empty() || !IsValidUtf8(piece.text)) {
      return Malformed(
          fmt::format("{}: expected a text in UTF-8, found {}", place, piece.text.empty() ? "none" : "other bytes"));
    }
    if (!std::isfinite(piece.score)) return Malformed(fmt::format("{}: expected a finite score", place));
    settings_.pieces.push_back(std::move(piece));
    return Status();
  }

  Status ReadTrainer(std::string_view message) {
    return ForEach(message, "trainer_spec", [this](const ProtoField& field) -> Status {
      switch (field.number) {
        case 3: settings_.algorithm = static_cast<int64_t>(field.value); break;
        case 24: settings_.normalizer.space_as_suffix = field.AsBool(); break;
        case 35: settings_.byte_fallback = field.AsBool(); break;
        case 44:
          RETURN_IF_ERROR(Expect(field, Wire::kBytes, "trainer_spec"));
          settings_.unknown_surface = RepairUtf8(field.bytes);
          break;
        default: break;
      }
      return Status();
    });
  }

  Status ReadNormalizer(std::string_view message) {
    return ForEach(message, "normalizer_spec", [this](const ProtoField& field) -> Status {
      switch (field.number) {
        case 2:
          RETURN_IF_ERROR(Expect(field, Wire::kBytes, "normalizer_spec"));
          settings_.charsmap = field.bytes;
          break;
        case 3: settings_.normalizer.add_dummy_prefix = field.AsBool(); break;
        case 4: settings_.normalizer.remove_extra_spaces = field.AsBool(); break;
        case 5: settings_.normalizer.escape_spaces = field.AsBool(); break;
        default: break;
      }
      return Status();
    });
  }

  Status CheckPieces() {
    if (settings_.pieces.empty()) return Malformed("expected pieces, found none");
    Vocabulary& vocabulary = *parts_.vocabulary;
    vocabulary.Reserve(settings_.pieces.size(), settings_.pieces.size() * 8);
    for (size_t i = 0; i < settings_.pieces.size(); ++i) {
      const SpmPiece& piece = settings_.pieces[i];
      if (vocabulary.Find(piece.text) != kNoToken) {
        return Malformed(fmt::format("piece {}: its text is that of an earlier piece", i));
      }
      vocabulary.Insert(piece.text, static_cast<TokenId>(i));
      if (piece.kind != Kind::kUnknown) continue;
      if (unknown_ != kNoToken) return Malformed("expected one piece of the unknown type, found two");
      unknown_ = static_cast<TokenId>(i);
    }
    if (unknown_ == kNoToken) return Malformed("expected a piece of the unknown type, found none");
    if (!settings_.byte_fallback) return Status();
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text = fmt::format("<0x{:02X}>", byte);
      const TokenId id = vocabulary.Find(text);
      if (id == kNoToken || settings_.pieces[static_cast<size_t>(id)].kind != Kind::kByte) {
        return Malformed(fmt::format("byte_fallback: expected a byte piece {}, found none", text));
      }
    }
    return Status();
  }

  Result<std::unique_ptr<PipelineTokenizer>> Assemble() {
    parts_.vocabulary->ShrinkToFit();
    const auto symbols = std::make_shared<const SpmSymbols>(settings_.pieces);
    std::optional<Charsmap> map;
    if (!settings_.charsmap.empty()) {
      ASSIGN_OR_RETURN(map, Charsmap::Parse(settings_.charsmap, fmt::format("{}: precompiled_charsmap", what_)));
    }
    parts_.normalizer = Normalizer::FromSentencePiece(
        std::make_shared<const SpmNormalizer>(settings_.normalizer, std::move(map), symbols));
    const SpmModelOptions options{.unknown = unknown_, .byte_fallback = settings_.byte_fallback};
    switch (static_cast<Algorithm>(settings_.algorithm)) {
      case Algorithm::kBpe:
        parts_.model = std::make_unique<SpmBpe>(*parts_.vocabulary, settings_.pieces, symbols, options);
        break;
      case Algorithm::kUnigram:
        parts_.model = std::make_unique<SpmUnigram>(*parts_.vocabulary, settings_.pieces, options);
        break;
      case Algorithm::kWord:
      case Algorithm::kChar:
      default:
        return UnsupportedError(fmt::format("{}: model_type: this build knows Unigram (1) and BPE (2), not {}", what_,
                                            settings_.algorithm));
    }
    parts_.decoder = MakeDecoder();
    for (const ConfigToken& token : tokens_) parts_.added.AddWithId(token.token, token.id);
    RETURN_IF_ERROR(parts_.added.Finish(Normalizer(), *parts_.vocabulary));
    return std::make_unique<PipelineTokenizer>(std::move(parts_));
  }

  Decoder MakeDecoder() {
    Decoder::SentencePieceStep step;
    step.has_bytes = settings_.byte_fallback;
    step.drops_first_space = settings_.normalizer.add_dummy_prefix;
    step.drops_leading_spaces = settings_.normalizer.remove_extra_spaces;
    parts_.control_ids.resize(settings_.pieces.size());
    for (size_t i = 0; i < settings_.pieces.size(); ++i) {
      const SpmPiece& piece = settings_.pieces[i];
      if (piece.kind == Kind::kControl) step.replaced.emplace(piece.text, "");
      if (piece.kind == Kind::kUnknown) step.replaced.emplace(piece.text, settings_.unknown_surface);
      parts_.control_ids[i] = piece.kind == Kind::kControl || piece.kind == Kind::kUnknown;
    }
    // What the config declares as a token of the text is shown as it is.
    for (const ConfigToken& token : tokens_) step.replaced.erase(token.token.content);
    return Decoder::SentencePiece(std::move(step));
  }

  const std::string_view content_;
  const std::string_view what_;
  const std::vector<ConfigToken>& tokens_;
  Settings settings_;
  TokenId unknown_ = kNoToken;
  PipelineParts parts_;
};

}  // namespace

Result<std::unique_ptr<PipelineTokenizer>> LoadSentencePiece(std::string_view content, std::string_view what,
                                                             const std::vector<ConfigToken>& tokens) {
  return Reader(content, what, tokens).Read();
}

bool LooksLikeSentencePiece(std::string_view content) {
  // The first field of every model is a piece, and its first field the text.
  return content.size() > 4 && content[0] == '\x0A' && content[2] == '\x0A';
}

}  // namespace nunspark::text
