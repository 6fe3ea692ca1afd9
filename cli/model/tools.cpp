// troupe tools: the formats in which models call tools, and what an answer calls.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "engine/chat/template.h"
#include "engine/chat/tools/tool_call_parser.h"
#include "engine/chat/tools/tool_form.h"
#include "engine/formats/model_file.h"
#include "engine/model/file_verdict.h"
#include "engine/model/memory_budget.h"

namespace troupe::cli {
namespace {

using engine::chat::AnswerPart;
using engine::chat::ToolFormat;
using nlohmann::ordered_json;

Error wrong_use(const std::string& what) {
  return {ErrorCode::invalid_argument, what + "; it is one of: parse [FILE], formats"};
}

Result<int> print_formats(bool as_json) {
  if (as_json) {
    auto out = ordered_json::array();
    for (const ToolFormat& each : engine::chat::tool_formats())
      out.push_back(
          {{"name", each.name}, {"models", each.models}, {"begins", engine::chat::call_beginning(each, "NAME")}});
    write_json(out, std::cout);
    return kExitOk;
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const ToolFormat& each : engine::chat::tool_formats())
    lines.emplace_back(std::string(each.name), std::string(each.models));
  std::cout << aligned(lines);
  return kExitOk;
}

// By the file's chat template, that for tools if it has one, else by its vocabulary.
Result<const ToolFormat*> format_of_model(const config::ModelOptions& options) {
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  const auto tokenizer = engine::judge_file(**file, engine::LoadOptions(), engine::default_memory_budget());
  if (!tokenizer) return tokenizer.error();
  const auto templates = engine::find_chat_templates(**file);
  if (!templates) return templates.error();
  return &engine::chat::choose_tool_format(engine::chat::tool_template(*templates), tokenizer->get());
}

Result<const ToolFormat*> format_of(const config::ToolsCommandOptions& options) {
  if (options.tool_format.empty()) return format_of_model(options);
  const ToolFormat* const format = engine::chat::find_tool_format(options.tool_format);
  if (format == nullptr)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there is no tool format '{}'; `troupe tools formats` lists them",
                             Printable(options.tool_format).text())};
  return format;
}

Result<std::shared_ptr<const engine::chat::ToolSet>> read_tools(const std::string& path) {
  if (path.empty()) return std::make_shared<const engine::chat::ToolSet>();
  const auto text = read_text(path);
  if (!text) return text.error();
  const auto json = engine::chat::parse_json(*text);
  if (!json) return Error{json.error().code, path + ": " + json.error().message};
  auto tools = engine::chat::ToolSet::make(*json);
  if (!tools) return Error{tools.error().code, path + ": " + tools.error().message};
  return std::make_shared<const engine::chat::ToolSet>(*std::move(tools));
}

// Writes one line of JSON for each part; calls count from 0.
class PartWriter {
 public:
  void write(const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& each : parts) {
      // A text, or arguments, are one line, however they were cut.
      const bool continues = each.kind == AnswerPart::Kind::text || each.kind == AnswerPart::Kind::arguments;
      if (continues && held_ && held_->kind == each.kind) {
        held_->text += each.text;
        continue;
      }
      flush();
      if (each.kind == AnswerPart::Kind::call) ++num_calls_;
      held_ = each;
    }
  }
  void flush() {
    if (!held_) return;
    ordered_json line;
    switch (held_->kind) {
      case AnswerPart::Kind::text:
        line = {{"type", "text"}, {"text", held_->text}};
        break;
      case AnswerPart::Kind::call:
        line = {{"type", "call"}, {"index", num_calls_ - 1}, {"name", held_->text}};
        break;
      case AnswerPart::Kind::arguments:
        line = {{"type", "arguments"}, {"index", num_calls_ - 1}, {"text", held_->text}};
        break;
      case AnswerPart::Kind::call_end:
        line = {{"type", "end"}, {"index", num_calls_ - 1}};
        break;
    }
    std::cout << line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    held_.reset();
  }

 private:
  std::optional<AnswerPart> held_;
  std::size_t num_calls_ = 0;
};

Result<int> parse(const config::ToolsCommandOptions& options, const std::string& path) {
  const auto format = format_of(options);
  if (!format) return format.error();
  const auto tools = read_tools(options.tools);
  if (!tools) return tools.error();
  const auto text = read_text(path);
  if (!text) return text.error();
  engine::chat::ToolCallParser parser(**format, *tools);
  PartWriter writer;
  writer.write(parser.push(*text));
  writer.write(parser.finish());
  writer.flush();
  return kExitOk;
}

}  // namespace

Result<int> tools(const config::ToolsCommandOptions& options, const config::Given& given) {
  const std::vector<std::string>& words = given.arguments;
  if (words.empty()) return wrong_use("what to do is missing");
  const std::string& verb = words.front();
  if (verb == "formats")
    return words.size() == 1 ? print_formats(options.json) : Result<int>(wrong_use("formats takes no arguments"));
  if (verb != "parse") return wrong_use(fmt::format("there is no '{}'", Printable(verb).text()));
  if (words.size() > 2) return wrong_use("parse takes one file");
  return parse(options, words.size() == 2 ? words[1] : "-");
}

}  // namespace troupe::cli
