// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/errors.hpp"
#include "profiler/records/kernel_fields.hpp"

namespace tilescope {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

template <class T>
void add_once(std::vector<T>& all, T one) {
  if (std::ranges::find(all, one) == all.end()) all.push_back(std::move(one));
}

/// @returns whether it is the last of its file
bool read_event(const Json& event, Events& events) {
  const std::string& kind = event.begin().key();
  const Json& value = event.begin().value();
  if (kind == "kernel") {
    events.kernels.push_back(value.get<KernelMeasurement>());
  } else if (kind == "collection") {
    add_once(events.collections, value.get<CollectionFacts>());
  } else if (kind == "message") {
    add_once(events.messages, value.get<std::string>());
  }
  return kind == "end";
}

/// @returns whether the file ends as it should, and all of it can be read
bool read_file(const fs::path& path, Events& events) {
  std::ifstream file(path);
  bool ended = false, readable = true;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.size() != 1) continue;  // the half line that a killed process leaves
    try {
      ended = read_event(json, events) || ended;
    } catch (const std::exception& error) {
      readable = false;
      add_once(events.messages, std::string("an event that a process wrote cannot be read: ") + error.what());
    }
  }
  return ended && readable;
}

}  // namespace

void to_json(Json& json, const CollectionFacts& facts) { json = Part<CollectionFacts>{}.write(facts); }
void from_json(const Json& json, CollectionFacts& facts) {
  facts = Part<CollectionFacts>{}.read(JsonField("collection", json));
}

EventFile::EventFile(const std::string& folder) {
  // The name sorts by start: a process identifier alone may be used twice.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::string path =
      folder + "/" + std::to_string(microseconds) + "-" + std::to_string(getpid()) + ".jsonl";
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

EventFile::~EventFile() {
  if (file_ >= 0) close(file_);
}

void EventFile::collection(const CollectionFacts& facts) { write({{"collection", Json(facts)}}); }
void EventFile::kernel(const KernelMeasurement& kernel) { write({{"kernel", Json(kernel)}}); }
void EventFile::message(const std::string& sentence) { write({{"message", sentence}}); }
void EventFile::end() { write({{"end", true}}); }

void EventFile::write(const Json& event) {
  // Whatever bytes a name may hold, a line is a line.
  const std::string line = event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

Events read_events(const std::string& folder) {
  Events events;
  std::vector<fs::path> paths;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    std::error_code ignored;  // what is no file may never end
    if (entry.is_regular_file(ignored)) paths.push_back(entry.path());
  }
  if (failed) throw MachineLacks("the folder " + folder + " cannot be read (" + failed.message() + ")");
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    ++events.processes;
    if (!read_file(path, events)) ++events.unfinished;
  }
  return events;
}

}  // namespace tilescope
