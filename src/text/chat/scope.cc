// Which variable a name means: Jinja2's static rules.
//
// Every scope (root, loop body, macro, with, ...) has a table of the names that it loads or stores. A name that a scope
// stores is the scope's own from its beginning: it starts as the outer variable's value (an alias) or as undefined. A
// name that is only loaded belongs to the nearest scope around that knows it, else it comes from the context. All
// branches of an `if` share one table: a name set in some of them only starts as what it would be without the `if`.
#include <fmt/format.h>

#include <deque>
#include <map>
#include <set>
#include <string>

#include "base/check.h"
#include "text/chat/parser.h"

namespace nunspark::text::jinja {
namespace {

// Deepest expression or block tree that the recursive passes accept.
constexpr int kMaxHeight = 700;

// Names looked up, entered and merged; below 5,000 in every published template. Without it the work would be the
// product of a template's length and the depth of its blocks.
constexpr int64_t kMaxNameSteps = 50'000;

struct Function {
  Function* parent;
  std::map<std::pair<int, std::string>, int> slots;

  // Sibling scopes of one level share the slots of equal names.
  int Slot(int level, const std::string& name) {
    return slots.try_emplace({level, name}, static_cast<int>(slots.size())).first->second;
  }
  int slot_count() const { return static_cast<int>(slots.size()); }
};

struct Ref {
  Function* function = nullptr;
  int slot = -1;
};

// The table of a scope, or of a branch of an `if` on top of the table around (`base`).
struct Symbols {
  enum class Action : uint8_t { kParameter, kResolve, kAlias, kUndefined };
  struct Origin {
    Action action;
    std::string name;
    Ref source;
  };

  Function* function = nullptr;
  const Symbols* parent = nullptr;
  const Symbols* base = nullptr;
  int level = 0;
  int64_t* steps = nullptr;  // counts towards kMaxNameSteps
  std::map<std::string, Ref> refs;
  std::map<int, Origin> origins;  // by slot
  std::set<std::string> stores;

  // In this scope only.
  const Ref* FindOwn(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->base) {
      ++*steps;
      if (auto it = s->refs.find(name); it != s->refs.end()) return &it->second;
    }
    return nullptr;
  }
  const Ref* Find(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->parent) {
      if (const Ref* ref = s->FindOwn(name)) return ref;
    }
    return nullptr;
  }
  bool Stores(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->base) {
      ++*steps;
      if (s->stores.contains(name)) return true;
    }
    return false;
  }
  int Define(const std::string& name, Origin origin) {
    const int slot = function->Slot(level, name);
    refs[name] = {function, slot};
    origins[slot] = std::move(origin);
    return slot;
  }
  int DeclareParameter(const std::string& name) {
    stores.insert(name);
    return Define(name, {Action::kParameter, {}, {}});
  }
  void Store(const std::string& name) {
    stores.insert(name);
    if (FindOwn(name) != nullptr) return;
    const Ref* outer = parent != nullptr ? parent->Find(name) : nullptr;
    if (outer != nullptr) {
      Define(name, {Action::kAlias, {}, *outer});
    } else {
      Define(name, {Action::kUndefined, {}, {}});
    }
  }
  void Load(const std::string& name) {
    if (Find(name) == nullptr) Define(name, {Action::kResolve, name, {}});
  }
};

struct Frame {
  Symbols* symbols = nullptr;
  Function* function = nullptr;
  bool toplevel = false;
  bool soft = false;     // in an if: unknown filters are an error only when reached
  bool in_loop = false;  // break and continue are allowed

  Frame Soft() const {
    Frame copy = *this;
    copy.soft = true;
    return copy;
  }
};

template <typename Visit>
void ForEachChild(const Expr* expr, Visit visit) {
  // In Jinja2's order, which decides what counts as used before it is assigned.
  if (expr->kind == ExprKind::kCondition) visit(expr->test);
  if (expr->left != nullptr) visit(expr->left);
  if (expr->right != nullptr) visit(expr->right);
  for (Expr* item : expr->items) {
    if (item != nullptr) visit(item);
  }
  for (Expr* argument : expr->call.positional) visit(argument);
  for (const auto& [name, argument] : expr->call.keywords) visit(argument);
  if (expr->call.star != nullptr) visit(expr->call.star);
  if (expr->call.star_star != nullptr) visit(expr->call.star_star);
}

template <typename VisitExpr, typename VisitStmt>
void ForEachChild(const Stmt* stmt, VisitExpr expr, VisitStmt child) {
  auto one = [&](Expr* e) {
    if (e != nullptr) expr(e);
  };
  auto all = [&](const std::vector<Stmt*>& list) {
    for (Stmt* s : list) child(s);
  };
  const bool body_first = stmt->kind == StmtKind::kFilterBlock;
  if (body_first) all(stmt->body);
  if (stmt->kind != StmtKind::kFor) one(stmt->test);
  one(stmt->target);
  for (Expr* e : stmt->targets) one(e);
  one(stmt->value);
  one(stmt->filter);
  for (Expr* e : stmt->exprs) one(e);
  for (Expr* e : stmt->macro.defaults) one(e);
  if (!body_first) all(stmt->body);
  all(stmt->elifs);
  all(stmt->else_body);
  if (stmt->kind == StmtKind::kFor) one(stmt->test);
}

// Those of `names` that are loaded before they are stored, in reading order.
class UndeclaredFinder {
 public:
  UndeclaredFinder(std::set<std::string> names, int64_t& steps) : names_(std::move(names)), steps_(steps) {}
  std::set<std::string> Find(const std::vector<Stmt*>& body) {
    for (const Stmt* stmt : body) Visit(stmt);
    return found_;
  }

 private:
  void Visit(const Expr* expr) {
    if (expr->kind == ExprKind::kName) {
      if (expr->use == NameUse::kLoad && names_.contains(expr->text)) {
        found_.insert(expr->text);
      } else {
        names_.erase(expr->text);
      }
      return;
    }
    ForEachChild(expr, [this](const Expr* child) { Visit(child); });
  }
  void Visit(const Stmt* stmt) {
    ++steps_;
    if (stmt->kind == StmtKind::kBlock || names_.empty() || steps_ > kMaxNameSteps) return;
    for (const std::string& parameter : stmt->macro.parameter_names) names_.erase(parameter);
    ForEachChild(
        stmt, [this](const Expr* child) { Visit(child); }, [this](const Stmt* child) { Visit(child); });
  }

  std::set<std::string> names_;
  std::set<std::string> found_;
  int64_t& steps_;
};

class Resolver {
 public:
  Resolver(Template& tree, TemplateError& error) : tree_(tree), error_(error) {}
  bool Run();

 private:
  // --- First pass over a scope: fills its table ---
  void Collect(Symbols& symbols, const Expr* expr, bool as_parameter = false);
  void Collect(Symbols& symbols, const Stmt* stmt);
  void CollectAll(Symbols& symbols, const std::vector<Stmt*>& body) {
    for (const Stmt* stmt : body) Collect(symbols, stmt);
  }
  void CollectIf(Symbols& symbols, const Stmt* stmt);

  // --- Second pass: writes slots into the tree ---
  void Bind(Expr* expr, const Frame& frame);
  void BindAll(const std::vector<Expr*>& exprs, const Frame& frame) {
    for (Expr* expr : exprs) Bind(expr, frame);
  }
  void Bind(Stmt* stmt, const Frame& frame);
  void BindBody(const std::vector<Stmt*>& body, const Frame& frame) {
    for (Stmt* stmt : body) Bind(stmt, frame);
  }
  void BindFor(Stmt* stmt, const Frame& frame);
  void BindForTest(Stmt* stmt, const Frame& frame);
  void BindMacro(Stmt* stmt, const Frame& frame);
  void BindNested(Stmt* stmt, const Frame& frame);
  void BindBlock(Stmt* stmt, const Frame& frame);
  void CompileBlock(BlockInfo& block);
  void Export(const Expr* target, const Frame& frame, Stmt* stmt);
  Expr* CloneTarget(const Expr* target);
  void FindBlocks(Stmt* stmt);
  bool AssignsLoop(const Stmt* stmt) const;
  bool AssignsLoop(const Expr* expr) const;
  bool CheckHeight(const Stmt* stmt, int height);
  bool CheckHeight(const Expr* expr, int height);

  Symbols* NewSymbols(const Symbols* parent, Function* function);
  Function* NewFunction(Function* parent) { return &functions_.emplace_back(Function{parent, {}}); }
  Frame Inner(const Frame& frame, Function* function);
  Scope Entry(const Symbols& symbols, const Function* function);
  static VariableRef Relative(const Ref& ref, const Function* function);
  VariableRef Lookup(const std::string& name, const Frame& frame);
  void Fail(std::string_view type, std::string message, int line) {
    if (error_.type.empty()) error_ = {std::string(type), fmt::format("{} (line {})", message, line)};
  }
  bool failed() {
    if (steps_ > kMaxNameSteps) {
      error_ = {"LimitError", fmt::format("the template's names need more than {} look-ups", kMaxNameSteps)};
    }
    return !error_.type.empty();
  }

  Template& tree_;
  TemplateError& error_;
  std::deque<Symbols> symbols_;
  std::deque<Function> functions_;
  int64_t steps_ = 0;
};

bool Resolver::Run() {
  for (const Stmt* stmt : tree_.body) {
    if (!CheckHeight(stmt, 0)) return false;
  }
  for (Stmt* stmt : tree_.body) FindBlocks(stmt);
  Frame root;
  root.function = NewFunction(nullptr);
  root.symbols = NewSymbols(nullptr, root.function);
  root.toplevel = true;
  if (UndeclaredFinder({"self"}, steps_).Find(tree_.body).contains("self")) {
    tree_.self_slot = root.symbols->DeclareParameter("self");
  }
  CollectAll(*root.symbols, tree_.body);
  if (failed()) return false;
  tree_.scope = Entry(*root.symbols, root.function);
  BindBody(tree_.body, root);
  tree_.slot_count = root.function->slot_count();
  for (auto& [name, block] : tree_.blocks) CompileBlock(block);
  return !failed();
}

bool Resolver::CheckHeight(const Expr* expr, int height) {
  if (height > kMaxHeight) {
    Fail("LimitError", fmt::format("an expression is nested deeper than {} levels", kMaxHeight), expr->line);
    return false;
  }
  bool ok = true;
  ForEachChild(expr, [&](const Expr* child) { ok = ok && CheckHeight(child, height + 1); });
  return ok;
}

bool Resolver::CheckHeight(const Stmt* stmt, int height) {
  bool ok = true;
  ForEachChild(
      stmt, [&](const Expr* child) { ok = ok && CheckHeight(child, height + 1); },
      [&](const Stmt* child) { ok = ok && CheckHeight(child, height + 1); });
  return ok;
}

void Resolver::FindBlocks(Stmt* stmt) {
  if (stmt->kind == StmtKind::kBlock) {
    if (!tree_.blocks.emplace(stmt->text, BlockInfo{.stmt = stmt, .scope = {}}).second) {
      Fail("TemplateAssertionError", fmt::format("block '{}' defined twice", stmt->text), stmt->line);
    }
  }
  ForEachChild(
      stmt, [](const Expr*) {}, [this](Stmt* child) { FindBlocks(child); });
}

// --- First pass ---

void Resolver::Collect(Symbols& symbols, const Expr* expr, bool as_parameter) {
  if (expr->kind == ExprKind::kName) {
    if (as_parameter || expr->use == NameUse::kParameter) {
      symbols.DeclareParameter(expr->text);
    } else if (expr->use == NameUse::kStore) {
      symbols.Store(expr->text);
    } else {
      symbols.Load(expr->text);
    }
    return;
  }
  if (expr->kind == ExprKind::kNamespaceRef) symbols.Load(expr->text);
  ForEachChild(expr, [&](const Expr* child) { Collect(symbols, child, as_parameter); });
}

void Resolver::Collect(Symbols& symbols, const Stmt* stmt) {
  if (failed()) return;
  switch (stmt->kind) {
    case StmtKind::kOutput:
      for (const Expr* expr : stmt->exprs) Collect(symbols, expr);
      return;
    case StmtKind::kFor: Collect(symbols, stmt->value); return;
    case StmtKind::kIf: CollectIf(symbols, stmt); return;
    case StmtKind::kSet:
      Collect(symbols, stmt->value);
      Collect(symbols, stmt->target);
      return;
    case StmtKind::kSetBlock: Collect(symbols, stmt->target); return;
    case StmtKind::kMacro: symbols.Store(stmt->text); return;
    case StmtKind::kCallBlock:
      if (stmt->value != nullptr) Collect(symbols, stmt->value);
      return;
    case StmtKind::kFilterBlock: Collect(symbols, stmt->filter); return;
    case StmtKind::kWith:
      for (const Expr* expr : stmt->exprs) Collect(symbols, expr);
      return;
    case StmtKind::kImport:
      Collect(symbols, stmt->value);
      for (const std::string& name : stmt->names) symbols.Store(name);
      return;
    case StmtKind::kExtends: Collect(symbols, stmt->value); return;
    case StmtKind::kAutoescape:
    case StmtKind::kBlock:
    case StmtKind::kBreak:
    case StmtKind::kContinue: return;
  }
}

void Resolver::CollectIf(Symbols& symbols, const Stmt* stmt) {
  Collect(symbols, stmt->test);
  Symbols branches[3];
  for (Symbols& branch : branches) {
    branch.function = symbols.function;
    branch.parent = symbols.parent;
    branch.level = symbols.level;
    branch.base = &symbols;
    branch.steps = &steps_;
  }
  CollectAll(branches[0], stmt->body);
  CollectAll(branches[1], stmt->elifs);
  CollectAll(branches[2], stmt->else_body);
  std::map<std::string, int> stored_in;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stores) {
      if (!symbols.Stores(name)) ++stored_in[name];
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, ref] : branch.refs) symbols.refs[name] = ref;
    for (const auto& [slot, origin] : branch.origins) symbols.origins[slot] = origin;
    symbols.stores.insert(branch.stores.begin(), branch.stores.end());
    steps_ += static_cast<int64_t>(branch.refs.size() + branch.stores.size());
  }
  for (const auto& [name, count] : stored_in) {
    if (count == 3) continue;
    const Ref* ref = symbols.Find(name);
    CHECK(ref != nullptr);
    const Ref* outer = symbols.parent != nullptr ? symbols.parent->Find(name) : nullptr;
    if (outer != nullptr) {
      symbols.origins[ref->slot] = {Symbols::Action::kAlias, {}, *outer};
    } else {
      symbols.origins[ref->slot] = {Symbols::Action::kResolve, name, {}};
    }
  }
}

// --- Second pass ---

Symbols* Resolver::NewSymbols(const Symbols* parent, Function* function) {
  Symbols& symbols = symbols_.emplace_back();
  symbols.function = function;
  symbols.parent = parent;
  symbols.steps = &steps_;
  symbols.level = parent == nullptr ? 0 : parent->level + 1;
  return &symbols;
}

Frame Resolver::Inner(const Frame& frame, Function* function) {
  Frame inner;
  inner.function = function;
  inner.symbols = NewSymbols(frame.symbols, function);
  inner.in_loop = frame.in_loop && function == frame.function;
  return inner;
}

VariableRef Resolver::Relative(const Ref& ref, const Function* function) {
  VariableRef variable{0, ref.slot};
  for (const Function* f = function; f != ref.function; f = f->parent) {
    CHECK(f != nullptr);
    ++variable.hops;
  }
  return variable;
}

VariableRef Resolver::Lookup(const std::string& name, const Frame& frame) {
  const Ref* ref = frame.symbols->Find(name);
  if (ref == nullptr) {
    // Jinja2 itself fails here: the arguments of a set block's filter are not analysed.
    Fail("AssertionError",
         fmt::format("Tried to resolve a name to a reference that was unknown to the frame ('{}')", name), 0);
    return {};
  }
  return Relative(*ref, frame.function);
}

Scope Resolver::Entry(const Symbols& symbols, const Function* function) {
  Scope scope;
  for (const auto& [slot, origin] : symbols.origins) {
    scope.slots.push_back(slot);
    switch (origin.action) {
      case Symbols::Action::kParameter: break;
      case Symbols::Action::kResolve: scope.loads.push_back({Load::Action::kResolve, slot, origin.name, {}}); break;
      case Symbols::Action::kAlias:
        scope.loads.push_back({Load::Action::kAlias, slot, {}, Relative(origin.source, function)});
        break;
      case Symbols::Action::kUndefined: scope.loads.push_back({Load::Action::kUndefined, slot, {}, {}}); break;
    }
  }
  return scope;
}

void Resolver::Bind(Expr* expr, const Frame& frame) {
  if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceRef) {
    expr->variable = Lookup(expr->text, frame);
    return;
  }
  const bool is_filter = expr->kind == ExprKind::kFilter;
  if ((is_filter || expr->kind == ExprKind::kTest) && expr->builtin == nullptr && !frame.soft) {
    Fail("TemplateAssertionError", fmt::format("No {} named '{}'.", is_filter ? "filter" : "test", expr->text),
         expr->line);
  }
  const Frame children = expr->kind == ExprKind::kCondition ? frame.Soft() : frame;
  ForEachChild(expr, [&](Expr* child) { Bind(child, children); });
}

void Resolver::Export(const Expr* target, const Frame& frame, Stmt* stmt) {
  if (!frame.toplevel) return;
  if (target->kind == ExprKind::kName) stmt->exports.emplace_back(target->text, target->variable);
  for (const Expr* item : target->items) Export(item, frame, stmt);
}

void Resolver::Bind(Stmt* stmt, const Frame& frame) {
  if (failed()) return;
  switch (stmt->kind) {
    case StmtKind::kOutput: BindAll(stmt->exprs, frame); return;
    case StmtKind::kFor: BindFor(stmt, frame); return;
    case StmtKind::kIf: {
      const Frame soft = frame.Soft();
      Bind(stmt->test, soft);
      BindBody(stmt->body, soft);
      BindBody(stmt->elifs, soft);
      BindBody(stmt->else_body, soft);
      return;
    }
    case StmtKind::kSet:
      Bind(stmt->value, frame);
      Bind(stmt->target, frame);
      Export(stmt->target, frame, stmt);
      return;
    case StmtKind::kMacro:
      stmt->variable = Lookup(stmt->text, frame);
      if (frame.toplevel) stmt->exports.emplace_back(stmt->text, stmt->variable);
      BindMacro(stmt, frame);
      return;
    case StmtKind::kCallBlock:
      BindMacro(stmt, frame);
      if (stmt->value != nullptr) Bind(stmt->value, frame);
      return;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kWith:
    case StmtKind::kAutoescape: BindNested(stmt, frame); return;
    case StmtKind::kBlock: BindBlock(stmt, frame); return;
    case StmtKind::kImport: Bind(stmt->value, frame); return;
    case StmtKind::kExtends:
      if (!frame.toplevel) {
        Fail("TemplateAssertionError", "cannot use extend from a non top-level scope", stmt->line);
      }
      Bind(stmt->value, frame);
      return;
    case StmtKind::kBreak:
      if (!frame.in_loop) Fail("SyntaxError", "'break' outside loop", stmt->line);
      return;
    case StmtKind::kContinue:
      if (!frame.in_loop) Fail("SyntaxError", "'continue' not properly in loop", stmt->line);
      return;
  }
}

bool Resolver::AssignsLoop(const Expr* expr) const {
  if (expr->kind == ExprKind::kName) return expr->use == NameUse::kStore && expr->text == "loop";
  bool assigns = false;
  if (expr->kind == ExprKind::kTuple) {
    for (const Expr* item : expr->items) assigns = assigns || AssignsLoop(item);
  }
  return assigns;
}

bool Resolver::AssignsLoop(const Stmt* stmt) const {
  bool assigns = stmt->target != nullptr && AssignsLoop(stmt->target);
  ForEachChild(
      stmt, [](const Expr*) {}, [&](const Stmt* child) { assigns = assigns || AssignsLoop(child); });
  return assigns;
}

void Resolver::BindFor(Stmt* stmt, const Frame& frame) {
  Function* function = stmt->recursive ? NewFunction(frame.function) : frame.function;
  Frame loop = Inner(frame, function);
  loop.in_loop = true;
  const Frame otherwise = Inner(frame, function);

  bool has_scoped_block = false;
  for (const auto& [name, block] : tree_.blocks) has_scoped_block = has_scoped_block || block.stmt->scoped;
  stmt->has_loop_object =
      stmt->recursive || has_scoped_block || UndeclaredFinder({"loop"}, steps_).Find(stmt->body).contains("loop");
  if (stmt->has_loop_object) stmt->loop_slot = loop.symbols->DeclareParameter("loop");
  Collect(*loop.symbols, stmt->target, /*as_parameter=*/true);
  CollectAll(*loop.symbols, stmt->body);
  CollectAll(*otherwise.symbols, stmt->else_body);
  if (stmt->test != nullptr) BindForTest(stmt, frame);
  if (AssignsLoop(stmt)) {
    Fail("TemplateAssertionError", "Can't assign to special loop variable in for-loop target", stmt->line);
  }
  if (failed()) return;

  Bind(stmt->value, frame);
  Bind(stmt->target, loop);
  stmt->scope = Entry(*loop.symbols, function);
  BindBody(stmt->body, loop);
  stmt->else_scope = Entry(*otherwise.symbols, function);
  BindBody(stmt->else_body, otherwise);
  if (stmt->recursive) stmt->function_slots = function->slot_count();
}

void Resolver::BindForTest(Stmt* stmt, const Frame& frame) {
  Function* function = NewFunction(frame.function);
  const Frame test = Inner(frame, function);
  Collect(*test.symbols, stmt->target, /*as_parameter=*/true);
  Collect(*test.symbols, stmt->test);
  stmt->filter_target = CloneTarget(stmt->target);
  stmt->filter_scope = Entry(*test.symbols, function);
  Bind(stmt->filter_target, test);
  Bind(stmt->test, test);
  stmt->filter_slot_count = function->slot_count();
}

Expr* Resolver::CloneTarget(const Expr* target) {
  Expr* clone = &tree_.exprs.emplace_back(target->kind, target->line);
  clone->use = target->use;
  clone->text = target->text;
  for (const Expr* item : target->items) clone->items.push_back(CloneTarget(item));
  return clone;
}

void Resolver::BindMacro(Stmt* stmt, const Frame& frame) {
  Function* function = NewFunction(frame.function);
  const Frame inner = Inner(frame, function);
  MacroInfo& macro = stmt->macro;
  for (const std::string& name : macro.parameter_names) {
    macro.parameter_slots.push_back(inner.symbols->DeclareParameter(name));
  }
  for (const Expr* value : macro.defaults) Collect(*inner.symbols, value);
  CollectAll(*inner.symbols, stmt->body);

  std::set<std::string> special = UndeclaredFinder({"caller", "kwargs", "varargs"}, steps_).Find(stmt->body);
  for (size_t i = 0; i < macro.parameter_names.size(); ++i) {
    const std::string& name = macro.parameter_names[i];
    if (name == "kwargs" || name == "varargs") special.erase(name);
    if (name != "caller") continue;
    macro.explicit_caller = true;
    if (special.erase("caller") != 0 && i + macro.defaults.size() < macro.parameter_names.size()) {
      Fail("TemplateAssertionError",
           "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.",
           stmt->line);
    }
  }
  if (special.contains("caller")) macro.caller_slot = inner.symbols->DeclareParameter("caller");
  if (special.contains("kwargs")) macro.kwargs_slot = inner.symbols->DeclareParameter("kwargs");
  if (special.contains("varargs")) macro.varargs_slot = inner.symbols->DeclareParameter("varargs");
  // Again, now that the special names are parameters and no longer come from the context.
  CollectAll(*inner.symbols, stmt->body);
  if (failed()) return;

  macro.scope = Entry(*inner.symbols, function);
  BindAll(macro.defaults, inner);
  BindBody(stmt->body, inner);
  macro.slot_count = function->slot_count();
}

void Resolver::BindNested(Stmt* stmt, const Frame& frame) {
  const Frame inner = Inner(frame, frame.function);
  if (stmt->kind == StmtKind::kWith) {
    for (const Expr* target : stmt->targets) Collect(*inner.symbols, target);
  }
  if (stmt->kind == StmtKind::kAutoescape) Collect(*inner.symbols, stmt->value);
  CollectAll(*inner.symbols, stmt->body);
  if (stmt->kind == StmtKind::kFilterBlock) Collect(*inner.symbols, stmt->filter);
  if (failed()) return;

  stmt->scope = Entry(*inner.symbols, frame.function);
  if (stmt->kind == StmtKind::kWith) {
    BindAll(stmt->exprs, frame);
    BindAll(stmt->targets, inner);
  }
  if (stmt->kind == StmtKind::kAutoescape) Bind(stmt->value, inner);
  BindBody(stmt->body, inner);
  if (stmt->filter != nullptr) Bind(stmt->filter, inner);
  if (stmt->kind == StmtKind::kSetBlock) {
    Bind(stmt->target, frame);
    Export(stmt->target, frame, stmt);
  }
}

void Resolver::BindBlock(Stmt* stmt, const Frame& frame) {
  if (!stmt->scoped) return;
  std::set<std::string> seen;
  for (const Symbols* s = frame.symbols; s != nullptr; s = s->parent) {
    for (const std::string& name : s->stores) {
      if (seen.insert(name).second) stmt->locals.emplace_back(name, Lookup(name, frame));
    }
  }
}

void Resolver::CompileBlock(BlockInfo& block) {
  if (failed()) return;
  Frame frame;
  frame.function = NewFunction(nullptr);
  frame.symbols = NewSymbols(nullptr, frame.function);
  const std::vector<Stmt*>& body = block.stmt->body;
  const std::set<std::string> special = UndeclaredFinder({"self", "super"}, steps_).Find(body);
  if (special.contains("self")) block.self_slot = frame.symbols->DeclareParameter("self");
  if (special.contains("super")) block.super_slot = frame.symbols->DeclareParameter("super");
  CollectAll(*frame.symbols, body);
  if (failed()) return;
  block.scope = Entry(*frame.symbols, frame.function);
  BindBody(body, frame);
  block.slot_count = frame.function->slot_count();
}

}  // namespace

bool ResolveScopes(Template& tree, TemplateError* error) {
  *error = {};
  return Resolver(tree, *error).Run();
}

}  // namespace nunspark::text::jinja
