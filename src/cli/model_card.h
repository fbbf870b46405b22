// README.md of an exported model: where it comes from, how it is loaded, how it was checked.
#pragma once

#include <string>

#include "evaluate/checkpoint_model.h"
#include "interchange/export_check.h"
#include "interchange/hugging_face_config.h"

namespace shiftron::cli {

// Which file of an export holds its tokenizer.
enum class ExportedTokenizer { none, json, sentencepiece };

std::string model_card(const CheckpointModel& model, const HuggingFaceConfig& written, ExportedTokenizer tokenizer,
                       const ExportCheck& check);

}  // namespace shiftron::cli
