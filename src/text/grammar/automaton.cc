#include "text/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "base/utf8.h"

namespace nunspark::text {
namespace {

constexpr size_t kMostNodes = 1 << 20;
// Ways in which one place of a grammar may go on at once. Real grammars have tens; those with rules of two alternatives
// that begin alike, n levels deep, have 2^n.
constexpr uint64_t kMostWays = 4096;

// One range of bytes for each byte of the encoded characters.
using ByteRanges = std::vector<CharRange>;

// Characters first..last as ranges of bytes, all of the same length of encoding.
void AppendUtf8Ranges(uint32_t first, uint32_t last, std::vector<ByteRanges>& out) {
  constexpr uint32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF};
  for (const uint32_t end : kLengthEnds) {
    if (first <= end && last > end) {
      AppendUtf8Ranges(first, end, out);
      AppendUtf8Ranges(end + 1, last, out);
      return;
    }
  }
  // Cut so that every byte but the first that differs runs over all its values.
  if (first > 0x7F) {
    for (int i = 1; i < 4; ++i) {
      const uint32_t mask = (1u << (6 * i)) - 1;
      if ((first & ~mask) == (last & ~mask)) break;
      if ((first & mask) != 0) {
        AppendUtf8Ranges(first, first | mask, out);
        AppendUtf8Ranges((first | mask) + 1, last, out);
        return;
      }
      if ((last & mask) != mask) {
        AppendUtf8Ranges(first, (last & ~mask) - 1, out);
        AppendUtf8Ranges(last & ~mask, last, out);
        return;
      }
    }
  }
  std::string low, high;
  AppendUtf8(first, low);
  AppendUtf8(last, high);
  ByteRanges ranges;
  for (size_t i = 0; i < low.size(); ++i)
    ranges.push_back({static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])});
  out.push_back(std::move(ranges));
}

// For every expression whether `base` holds of it, given that it holds of a choice when it holds of one child and of a
// sequence when it holds of all. Linear in the grammar's size.
class Spread {
 public:
  explicit Spread(const Grammar& grammar) : grammar_(grammar), parents_(grammar.expr_count() + grammar.rule_count()) {
    for (ExprId id = 0; id < grammar.expr_count(); ++id) {
      const Grammar::Expr& e = grammar.expr(id);
      if (e.kind == Grammar::Kind::kRule) {
        parents_[grammar.expr_count() + e.begin].push_back(id);
      } else if (HasChildren(e)) {
        for (const ExprId child : grammar.children(e)) parents_[child].push_back(id);
      }
    }
    for (RuleId rule = 0; rule < grammar.rule_count(); ++rule) {
      parents_[grammar.body(rule)].push_back(static_cast<uint32_t>(grammar.expr_count() + rule));
    }
  }

  // By expression, then by rule.
  template <typename Base>
  std::vector<bool> Run(Base base) const {
    std::vector<bool> holds(parents_.size());
    std::vector<uint32_t> missing(grammar_.expr_count());
    std::vector<uint32_t> found;
    const auto set = [&](uint32_t id) {
      if (!holds[id]) found.push_back(id);
      holds[id] = true;
    };
    for (ExprId id = 0; id < grammar_.expr_count(); ++id) {
      const Grammar::Expr& e = grammar_.expr(id);
      missing[id] = e.kind == Grammar::Kind::kSequence ? e.count : 1;
      if (missing[id] == 0 || base(e)) set(id);
    }
    while (!found.empty()) {
      const uint32_t id = found.back();
      found.pop_back();
      for (const uint32_t parent : parents_[id]) {
        if (parent >= grammar_.expr_count()) {
          set(parent);
        } else if (missing[parent] > 0 && --missing[parent] == 0) {
          set(parent);
        }
      }
    }
    return holds;
  }

 private:
  static bool HasChildren(const Grammar::Expr& e) {
    return e.kind == Grammar::Kind::kSequence || e.kind == Grammar::Kind::kChoice || e.kind == Grammar::Kind::kRepeat;
  }

  const Grammar& grammar_;
  std::vector<std::vector<uint32_t>> parents_;
};

bool HoldsPlainChars(std::span<const CharRange> ranges) {
  // Normal ranges: each gap may hold no plain character, so the ranges that count are these five.
  constexpr CharRange kPlain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF}};
  return std::all_of(std::begin(kPlain), std::end(kPlain), [&](CharRange plain) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](CharRange r) { return r.first <= plain.first && r.last >= plain.last; });
  });
}

}  // namespace

bool IsPlainChar(uint32_t c) { return c >= 0x20 && c != '"' && c != '\\' && c != 0x7F; }
bool IsPlainLead(uint8_t byte) { return IsPlainChar(byte) && (byte < 0x80 || (byte >= 0xC2 && byte <= 0xF4)); }

class AutomatonBuilder {
 public:
  using NodeId = Automaton::NodeId;
  using Node = Automaton::Node;
  using Kind = Automaton::Kind;

  AutomatonBuilder(const Grammar& grammar, RuleId root) : grammar_(grammar), root_(root) {}

  Result<Automaton> Build() {
    RETURN_IF_ERROR(grammar_.CheckSize());
    const Spread spread(grammar_);
    productive_ = spread.Run([&](const Grammar::Expr& e) {
      switch (e.kind) {
        case Grammar::Kind::kLiteral:
        case Grammar::Kind::kToken: return true;
        case Grammar::Kind::kChars:
        case Grammar::Kind::kBytes: return e.count > 0;
        case Grammar::Kind::kRepeat: return e.min == 0;
        case Grammar::Kind::kSequence:
        case Grammar::Kind::kChoice:
        case Grammar::Kind::kRule: break;
      }
      return false;
    });
    nullable_ = spread.Run([&](const Grammar::Expr& e) {
      return (e.kind == Grammar::Kind::kLiteral && e.count == 0) || (e.kind == Grammar::Kind::kRepeat && e.min == 0);
    });
    if (!productive_[RuleIndex(root_)]) {
      return InvalidArgumentError(fmt::format("'{}' can never be complete: no text matches it", grammar_.name(root_)));
    }
    RETURN_IF_ERROR(CheckRules());
    automaton_.root_ = root_;
    automaton_.rule_starts_.assign(grammar_.rule_count(), Automaton::kEnd);
    for (const RuleId rule : reached_) {
      // A call's own node may stand for a rule that is only a call; nothing refers to a start before all are there.
      if (productive_[RuleIndex(rule)]) automaton_.rule_starts_[rule] = Compile(grammar_.body(rule), Automaton::kEnd);
      if (automaton_.nodes_.size() > kMostNodes || automaton_.edges_.size() > 4 * kMostNodes) {
        return ResourceExhaustedError(fmt::format("the grammar is too large: more than {} states", kMostNodes));
      }
    }
    for (Node& node : automaton_.nodes_) {
      if (node.kind == Kind::kRepeat) node.closed = FollowIsClosed(node.next);
    }
    RETURN_IF_ERROR(CheckWays());
    FindClasses();
    return std::move(automaton_);
  }

 private:
  size_t RuleIndex(RuleId rule) const { return grammar_.expr_count() + rule; }

  // Rules that a rule may begin with; checks repeated parts on the way, and lists the rules that are used.
  void FindLeftRules(ExprId id, bool left, std::vector<RuleId>& starts, bool& loops) {
    const Grammar::Expr& e = grammar_.expr(id);
    switch (e.kind) {
      case Grammar::Kind::kRule:
        if (left && productive_[id]) starts.push_back(e.begin);
        Reach(e.begin);
        break;
      case Grammar::Kind::kSequence:
        for (const ExprId child : grammar_.children(e)) {
          FindLeftRules(child, left, starts, loops);
          left = left && nullable_[child];
        }
        break;
      case Grammar::Kind::kRepeat:
        if (nullable_[grammar_.children(e)[0]] && e.max > 1) loops = true;
        [[fallthrough]];
      case Grammar::Kind::kChoice:
        for (const ExprId child : grammar_.children(e)) FindLeftRules(child, left, starts, loops);
        break;
      case Grammar::Kind::kLiteral:
      case Grammar::Kind::kChars:
      case Grammar::Kind::kBytes:
      case Grammar::Kind::kToken: break;
    }
  }

  void Reach(RuleId rule) {
    if (is_reached_[rule]) return;
    is_reached_[rule] = true;
    reached_.push_back(rule);
  }

  // No rule begins with itself, no repeated part may be empty: either would be a loop that reads nothing.
  Status CheckRules() {
    is_reached_.assign(grammar_.rule_count(), false);
    Reach(root_);
    std::vector<std::vector<RuleId>> starts(grammar_.rule_count());
    for (size_t i = 0; i < reached_.size(); ++i) {
      const RuleId rule = reached_[i];
      bool loops = false;
      FindLeftRules(grammar_.body(rule), true, starts[rule], loops);
      if (loops) {
        return InvalidArgumentError(fmt::format(
            "'{}' repeats a part that may be empty; give it a part that always has text", grammar_.name(rule)));
      }
    }
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(grammar_.rule_count(), Mark::kNew);
    std::vector<std::pair<RuleId, size_t>> path;
    for (const RuleId first : reached_) {
      if (marks[first] != Mark::kNew) continue;
      marks[first] = Mark::kOpen;
      path.assign(1, {first, 0});
      while (!path.empty()) {
        auto& [rule, at] = path.back();
        if (at == starts[rule].size()) {
          marks[rule] = Mark::kDone;
          path.pop_back();
          continue;
        }
        const RuleId next = starts[rule][at++];
        if (marks[next] == Mark::kOpen) {
          return InvalidArgumentError(fmt::format(
              "'{}' begins with itself (left recursion); put what it repeats behind other text", grammar_.name(next)));
        }
        if (marks[next] == Mark::kDone) continue;
        marks[next] = Mark::kOpen;
        path.emplace_back(next, 0);
      }
    }
    return Status();
  }

  NodeId Add(Node node) {
    automaton_.nodes_.push_back(node);
    return static_cast<NodeId>(automaton_.nodes_.size() - 1);
  }

  NodeId AddBytes(std::span<const Automaton::Edge> edges, Spelled spelled) {
    const auto first = static_cast<uint32_t>(automaton_.edges_.size());
    automaton_.edges_.insert(automaton_.edges_.end(), edges.begin(), edges.end());
    return Add(
        {.kind = Kind::kBytes, .spelled = spelled, .first = first, .count = static_cast<uint32_t>(edges.size())});
  }

  NodeId AddSplit(const std::vector<NodeId>& targets) {
    if (targets.size() == 1) return targets[0];
    const auto first = static_cast<uint32_t>(automaton_.targets_.size());
    automaton_.targets_.insert(automaton_.targets_.end(), targets.begin(), targets.end());
    return Add({.kind = Kind::kSplit, .first = first, .count = static_cast<uint32_t>(targets.size())});
  }

  // The node from which `id` and then `next` are read.
  NodeId Compile(ExprId id, NodeId next) {
    if (automaton_.nodes_.size() > kMostNodes) return next;
    const Grammar::Expr& e = grammar_.expr(id);
    switch (e.kind) {
      case Grammar::Kind::kLiteral: {
        const std::string_view text = grammar_.text(e);
        for (size_t i = text.size(); i-- > 0;) {
          const auto byte = static_cast<uint8_t>(text[i]);
          const Automaton::Edge edge{byte, byte, next};
          next = AddBytes(std::span(&edge, 1), e.spelled);
        }
        return next;
      }
      case Grammar::Kind::kBytes: {
        std::vector<Automaton::Edge> edges;
        for (const CharRange r : grammar_.ranges(e)) {
          edges.push_back({static_cast<uint8_t>(r.first), static_cast<uint8_t>(r.last), next});
        }
        return AddBytes(edges, e.spelled);
      }
      case Grammar::Kind::kChars: return CompileChars(e, next);
      case Grammar::Kind::kToken: return Add({.kind = Kind::kToken, .first = e.begin, .next = next});
      case Grammar::Kind::kSequence: {
        const std::span<const ExprId> parts = grammar_.children(e);
        for (size_t i = parts.size(); i-- > 0;) next = Compile(parts[i], next);
        return next;
      }
      case Grammar::Kind::kChoice: {
        std::vector<NodeId> targets;
        for (const ExprId part : grammar_.children(e)) {
          if (productive_[part]) targets.push_back(Compile(part, next));
        }
        return AddSplit(targets);
      }
      case Grammar::Kind::kRepeat: {
        const ExprId part = grammar_.children(e)[0];
        if (e.max == 0 || !productive_[part]) return next;
        if (e.max == 1) return e.min == 1 ? Compile(part, next) : AddSplit({Compile(part, next), next});
        const NodeId body = Compile(part, Automaton::kEnd);
        return Add({.kind = Kind::kRepeat, .first = body, .min = e.min, .max = e.max, .next = next});
      }
      case Grammar::Kind::kRule: return Add({.kind = Kind::kCall, .first = e.begin, .next = next});
    }
    return next;
  }

  NodeId CompileChars(const Grammar::Expr& e, NodeId next) {
    std::vector<ByteRanges> sequences;
    for (const CharRange r : grammar_.ranges(e)) AppendUtf8Ranges(r.first, r.last, sequences);
    std::vector<std::span<const CharRange>> all(sequences.begin(), sequences.end());
    tails_.clear();
    const NodeId node = CompileSequences(all, next, e.spelled);
    automaton_.nodes_[node].plain = next == Automaton::kEnd && HoldsPlainChars(grammar_.ranges(e));
    return node;
  }

  // A tree over the bytes of the sequences. Equal sub-trees are one node.
  NodeId CompileSequences(const std::vector<std::span<const CharRange>>& sequences, NodeId next, Spelled spelled) {
    std::vector<Automaton::Edge> edges;
    for (size_t i = 0; i < sequences.size();) {
      // Sequences come in the order of their characters, so those with the same first range are neighbours and
      // different first ranges share no byte.
      const CharRange range = sequences[i][0];
      std::vector<std::span<const CharRange>> rest;
      for (; i < sequences.size() && sequences[i][0].first == range.first && sequences[i][0].last == range.last; ++i) {
        if (sequences[i].size() > 1) rest.push_back(sequences[i].subspan(1));
      }
      const NodeId target = rest.empty() ? next : CompileSequences(rest, next, spelled);
      if (!edges.empty() && edges.back().next == target && edges.back().last + 1u == range.first) {
        edges.back().last = static_cast<uint8_t>(range.last);
      } else {
        edges.push_back({static_cast<uint8_t>(range.first), static_cast<uint8_t>(range.last), target});
      }
    }
    std::vector<uint32_t> key;
    for (const Automaton::Edge& edge : edges) key.insert(key.end(), {edge.first, edge.last, edge.next});
    const auto [at, is_new] = tails_.try_emplace(std::move(key), 0);
    if (is_new) at->second = AddBytes(edges, spelled);
    return at->second;
  }

  bool FollowIsClosed(NodeId id) const {
    const Node& node = automaton_.nodes_[id];
    if (node.kind == Kind::kSplit) {
      const auto targets = automaton_.targets(node);
      return std::all_of(targets.begin(), targets.end(), [&](NodeId target) {
        return automaton_.nodes_[target].kind == Kind::kBytes && FollowIsClosed(target);
      });
    }
    if (node.kind != Kind::kBytes) return false;
    for (const Automaton::Edge& edge : automaton_.edges(node)) {
      for (uint32_t byte = edge.first; byte <= edge.last; ++byte) {
        if (IsPlainLead(static_cast<uint8_t>(byte))) return false;
      }
    }
    return true;
  }

  // Counts the reading nodes that can be next, over all stacks that lead to them. Calls that begin a rule form no
  // cycles, so an order exists; nodes are counted with an explicit stack because a chain of rules may be long.
  Status CheckWays() {
    constexpr uint64_t kUnknown = UINT64_MAX;
    std::vector<uint64_t> ways(automaton_.nodes_.size(), kUnknown);
    std::vector<NodeId> open;
    for (const RuleId rule : reached_) {
      open.push_back(automaton_.rule_starts_[rule]);
      while (!open.empty()) {
        const NodeId id = open.back();
        if (ways[id] != kUnknown) {
          open.pop_back();
          continue;
        }
        const Node& node = automaton_.nodes_[id];
        const std::vector<NodeId> needs = NextWithoutReading(node);
        uint64_t sum = needs.empty() ? 1 : 0;
        bool ready = true;
        for (const NodeId need : needs) {
          if (ways[need] == kUnknown) {
            open.push_back(need);
            ready = false;
          } else {
            sum = std::min(sum + ways[need], kMostWays + 1);
          }
        }
        if (!ready) continue;
        ways[id] = sum;
        open.pop_back();
        if (sum > kMostWays) {
          return ResourceExhaustedError(
              fmt::format("'{}' can go on in more than {} ways at once; give its alternatives "
                          "beginnings that differ",
                          grammar_.name(rule), kMostWays));
        }
      }
    }
    return Status();
  }

  std::vector<NodeId> NextWithoutReading(const Node& node) const {
    switch (node.kind) {
      case Kind::kSplit: {
        const auto targets = automaton_.targets(node);
        return {targets.begin(), targets.end()};
      }
      case Kind::kCall: {
        std::vector<NodeId> next{automaton_.rule_starts_[node.first]};
        if (nullable_[RuleIndex(node.first)]) next.push_back(node.next);
        return next;
      }
      case Kind::kRepeat:
        return node.min == 0 ? std::vector<NodeId>{node.first, node.next} : std::vector<NodeId>{node.first};
      case Kind::kEnd:
      case Kind::kBytes:
      case Kind::kToken: break;
    }
    return {};
  }

  void FindClasses() {
    std::array<bool, 257> cuts{};
    for (const Automaton::Edge& edge : automaton_.edges_) {
      cuts[edge.first] = true;
      cuts[edge.last + 1u] = true;
    }
    uint32_t current = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && cuts[byte]) ++current;
      automaton_.classes_[byte] = static_cast<uint8_t>(current);
    }
    automaton_.class_count_ = current + 1;
  }

  const Grammar& grammar_;
  const RuleId root_;
  std::vector<bool> productive_;
  std::vector<bool> nullable_;
  std::vector<bool> is_reached_;
  std::vector<RuleId> reached_;
  std::map<std::vector<uint32_t>, NodeId> tails_;  // of the characters being compiled
  Automaton automaton_;
};

Result<Automaton> Automaton::Compile(const Grammar& grammar, RuleId root) {
  return AutomatonBuilder(grammar, root).Build();
}

int64_t Automaton::memory_bytes() const {
  return static_cast<int64_t>(nodes_.capacity() * sizeof(Node) + edges_.capacity() * sizeof(Edge) +
                              targets_.capacity() * sizeof(NodeId) + rule_starts_.capacity() * sizeof(NodeId) +
                              sizeof(*this));
}

}  // namespace nunspark::text
