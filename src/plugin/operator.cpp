#include "tessera/plugin/operator.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <map>

#include "tessera/compile/passes/fuse_native_forms.h"
#include "tessera/compile/passes/native_form.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/text.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/c_values.h"

namespace tessera::plugin {
namespace {

Status check_operands(const tessera_plugin_operator& table) {
  if (table.num_operands > 0) TRY(check_set(table.operands, "table", "operands"));
  for (std::size_t i = 0; i < table.num_operands; ++i) {
    TRY(check_word(table.operands[i].name, "operand"));
    if (i > 0 && table.operands[i - 1].optional != 0 && table.operands[i].optional == 0)
      return invalid_argument(
          fmt::format("operand {} follows an optional one; it must be optional too", table.operands[i].name));
  }
  return ok_status();
}

Status check_attributes(const tessera_plugin_operator& table) {
  if (table.num_attributes > 0) TRY(check_set(table.attributes, "table", "attributes"));
  for (std::size_t i = 0; i < table.num_attributes; ++i) {
    const tessera_plugin_attribute_decl& attribute = table.attributes[i];
    TRY(check_word(attribute.name, "attribute"));
    if (attribute.kind < TESSERA_PLUGIN_BOOL || attribute.kind > TESSERA_PLUGIN_INTS)
      return invalid_argument(
          fmt::format("attribute {} is of kind {}; 0 to 4 are accepted", attribute.name, attribute.kind));
  }
  return ok_status();
}

Status check_table(const tessera_plugin_operator& table) {
  TRY(check_operands(table));
  TRY(check_attributes(table));
  TRY(check_set(table.infer, "table", "shape rule (infer)"));
  if (table.capturable == 0 && table.split_by_default == 0)
    return invalid_argument("it is not capturable, so forwards must be cut at it: set split_by_default");
  if (table.native_form != nullptr && table.num_operands > 0)
    TRY(check_set(table.example, "native form", "example of its operands' types"));
  if (table.fuses != 0) TRY(check_set(table.native_form, "table", "native form, which \"fuses\" looks for"));
  return ok_status();
}

// Returns the value as it is written in graph text.
std::string text_of(const ir::Attribute& value) {
  ir::Graph graph{.name = "g"};
  const std::string node = ir::to_text(graph, ir::Node{.op = "o", .attributes = {{"a", value}}});
  const std::size_t begin = node.find("a = ");
  return node.substr(begin + 4, node.rfind('}') - begin - 4);
}

// Returns the native form after replacing each "$name" by the value of the node's attribute "name".
Result<std::string> with_attributes(std::string_view form, const ir::Node& node) {
  std::string text;
  while (true) {
    const std::size_t dollar = form.find('$');
    text += form.substr(0, dollar);
    if (dollar == std::string_view::npos) return text;
    form.remove_prefix(dollar + 1);
    std::size_t length = 0;
    while (length < form.size() && (std::isalnum(static_cast<unsigned char>(form[length])) != 0 || form[length] == '_'))
      ++length;
    const std::string_view name = form.substr(0, length);
    const ir::Attribute* value = node.find_attribute(name);
    if (value == nullptr)
      return invalid_argument(fmt::format("the native form has ${}, an attribute that the node lacks", name));
    text += text_of(*value);
    form.remove_prefix(length);
  }
}

}  // namespace

Operator::Operator(const tessera_plugin_operator& table, ir::OpTable ops)
    : table_(table), ops_(std::move(ops)), pass_name_(fmt::format("fuse_{}", table.name)) {
  decl_.name = table.name;
  decl_.summary = table.summary == nullptr ? "" : table.summary;
  for (std::size_t i = 0; i < table.num_operands; ++i)
    decl_.operands.push_back({.name = table.operands[i].name,
                              .mutated = table.operands[i].mutated != 0,
                              .optional = table.operands[i].optional != 0});
  for (std::size_t i = 0; i < table.num_attributes; ++i)
    decl_.attributes.push_back({.name = table.attributes[i].name,
                                .kind = static_cast<ir::AttributeKind>(table.attributes[i].kind),
                                .required = table.attributes[i].required != 0});
  decl_.infer = Infer{this};
  decl_.capturable = table.capturable != 0;
  decl_.split_by_default = table.split_by_default != 0;
  if (table.native_form != nullptr)
    decl_.decompose = [this](ir::GraphBuilder& builder, const ir::Node& node, std::span<const ir::ValueId> operands) {
      return decompose(builder, node, operands);
    };
}

Result<std::shared_ptr<const Operator>> Operator::create(const tessera_plugin_operator* given, const ir::OpTable& ops) {
  const tessera_plugin_operator table = TRY(copy_table(given, "operator"));
  TRY(check_word(table.name, "operator"));
  const std::string context = fmt::format("operator {}", table.name);
  TRY(check_table(table).with_context(context));
  std::shared_ptr<const Operator> made(new Operator(table, ops));
  TRY(made->check_native_form().with_context(context));
  return made;
}

std::shared_ptr<const Operator> Operator::of(const ir::OpDecl& decl) {
  const Infer* rule = decl.infer.target<Infer>();
  return rule == nullptr ? nullptr : rule->op->shared_from_this();
}

Result<std::vector<ir::Type>> Operator::infer(const ir::OpSignature& signature) const {
  const CNode node(signature.node, TRY(CNode::types(signature.operands)));
  std::array<tessera_plugin_type, TESSERA_PLUGIN_MAX_RESULTS> results{};
  std::size_t count = 0;
  TRY(call([&](tessera_plugin_error* error) {
    return table_.infer(table_.self, node.get(), results.data(), &count, error);
  }));
  if (count > results.size())
    return internal_error(
        fmt::format("its shape rule gives {} results; at most {} are accepted", count, results.size()));
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < count; ++i)
    types.push_back(TRY(from_c(results[i]).with_context(fmt::format("its shape rule, result {}", i))));
  return types;
}

Result<std::vector<ir::ValueId>> Operator::decompose(ir::GraphBuilder& builder, const ir::Node& node,
                                                     std::span<const ir::ValueId> operands) const {
  std::string text = "graph @native_form {\n";
  for (std::size_t i = 0; i < operands.size(); ++i)
    text += fmt::format("{} %{}: {}\n", decl_.operands[i].mutated ? "state" : "input", decl_.operands[i].name,
                        builder.type(operands[i]).to_string());
  const std::string body = TRY(with_attributes(table_.native_form, node));
  const ir::Graph form = TRY(ir::parse_graph(text + body + "\n}\n", &ops_).with_context("its native form"));
  std::map<ir::ValueId, ir::ValueId> made;  // maps the native form's values to values of the builder's graph
  for (std::size_t i = 0; i < operands.size(); ++i)
    made[ir::ValueId(static_cast<std::int32_t>(i))] = operands[i];  // the form's inputs are its first values
  for (const ir::Node& simple : form.nodes) {
    std::vector<ir::ValueId> inputs;
    for (const ir::ValueId value : simple.operands) inputs.push_back(made.at(value));
    const std::vector<ir::ValueId> results = builder.multi_op(simple.op, std::move(inputs), simple.attributes);
    for (std::size_t i = 0; i < simple.results.size(); ++i) made[simple.results[i]] = results[i];
  }
  std::vector<ir::ValueId> outputs;
  for (const ir::ValueId output : form.outputs) outputs.push_back(made.at(output));
  return outputs;
}

Status Operator::check_native_form() const {
  if (table_.native_form == nullptr) return ok_status();
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < table_.num_operands; ++i)
    types.push_back(TRY(from_c(table_.example[i]).with_context(fmt::format("example of operand {}", i))));
  ir::Attributes attributes = TRY(from_c(table_.example_attributes, table_.num_example_attributes));
  ir::OpTable ops = ops_;
  TRY(ops.add(decl_));
  TRY(NativeForm::create({.op = decl_.name, .operands = std::move(types), .attributes = std::move(attributes)}, ops));
  return ok_status();
}

Result<Pass> Operator::fusing_pass() const {
  FusedForm form{.op = decl_.name, .operands = {}, .attributes = {}};
  for (std::size_t i = 0; i < table_.num_operands; ++i) form.operands.push_back(TRY(from_c(table_.example[i])));
  form.attributes = TRY(from_c(table_.example_attributes, table_.num_example_attributes));
  return Pass{.name = pass_name_,
              .summary = "a plugin's operator takes the place of its native form",
              .version = 1,
              .run = [self = shared_from_this(), form](const ir::Graph& graph, const ir::OpTable& ops) {
                return fuse_native_forms(graph, ops, std::span(&form, 1));
              }};
}

}  // namespace tessera::plugin
