// Made by `wit-bindgen c` 0.63 from `wit/skill.wit`; the builder adds the types that its object file would bring. Not edited by hand.
#include "palyra_bindings.h"
#include <stdlib.h>
#include <string.h>

// Imported Functions from `palyra:skill/log@1.0.0`

__attribute__((__import_module__("palyra:skill/log@1.0.0"), __import_name__("write")))
extern void __wasm_import_palyra_skill_log_write(int32_t, uint8_t *, size_t);

// Imported Functions from `palyra:skill/http@1.0.0`

__attribute__((__import_module__("palyra:skill/http@1.0.0"), __import_name__("send")))
extern void __wasm_import_palyra_skill_http_send(uint8_t *, size_t, uint8_t *, size_t, uint8_t *, size_t, uint8_t *, size_t, int32_t, int32_t, uint8_t *);

// Imported Functions from `palyra:skill/secrets@1.0.0`

__attribute__((__import_module__("palyra:skill/secrets@1.0.0"), __import_name__("read")))
extern void __wasm_import_palyra_skill_secrets_read(uint8_t *, size_t, uint8_t *, size_t, uint8_t *);

// Imported Functions from `palyra:skill/storage@1.0.0`

__attribute__((__import_module__("palyra:skill/storage@1.0.0"), __import_name__("read")))
extern void __wasm_import_palyra_skill_storage_read(uint8_t *, size_t, uint8_t *);

__attribute__((__import_module__("palyra:skill/storage@1.0.0"), __import_name__("write")))
extern void __wasm_import_palyra_skill_storage_write(uint8_t *, size_t, uint8_t *, size_t, uint8_t *);

__attribute__((__import_module__("palyra:skill/storage@1.0.0"), __import_name__("delete")))
extern void __wasm_import_palyra_skill_storage_delete(uint8_t *, size_t, uint8_t *);

__attribute__((__import_module__("palyra:skill/storage@1.0.0"), __import_name__("keys")))
extern void __wasm_import_palyra_skill_storage_keys(uint8_t *, size_t, uint8_t *);

// Exported Functions from `palyra:skill/tools@1.0.0`

__attribute__((__weak__, __export_name__("cabi_post_palyra:skill/tools@1.0.0#describe")))
void __wasm_export_exports_palyra_skill_tools_describe_post_return(uint8_t * arg0) {
  size_t len = *((size_t*) (arg0 + sizeof(void*)));
  if (len > 0) {
    uint8_t *ptr = *((uint8_t **) (arg0 + 0));
    for (size_t i = 0; i < len; i++) {
      uint8_t *base = ptr + i * (9*sizeof(void*));
      (void) base;
      if ((*((size_t*) (base + sizeof(void*)))) > 0) {
        free(*((uint8_t **) (base + 0)));
      }
      if ((*((size_t*) (base + (3*sizeof(void*))))) > 0) {
        free(*((uint8_t **) (base + (2*sizeof(void*)))));
      }
      if ((*((size_t*) (base + (5*sizeof(void*))))) > 0) {
        free(*((uint8_t **) (base + (4*sizeof(void*)))));
      }
      switch ((int32_t) (int32_t) *((uint8_t*) (base + (6*sizeof(void*))))) {
        case 0: {
          break;
        }
        case 1: {
          if ((*((size_t*) (base + (8*sizeof(void*))))) > 0) {
            free(*((uint8_t **) (base + (7*sizeof(void*)))));
          }
          break;
        }
      }
    }
    free(ptr);
  }
}

__attribute__((__weak__, __export_name__("cabi_post_palyra:skill/tools@1.0.0#invoke")))
void __wasm_export_exports_palyra_skill_tools_invoke_post_return(uint8_t * arg0) {
  switch ((int32_t) (int32_t) *((uint8_t*) (arg0 + 0))) {
    case 0: {
      if ((*((size_t*) (arg0 + (2*sizeof(void*))))) > 0) {
        free(*((uint8_t **) (arg0 + sizeof(void*))));
      }
      break;
    }
    case 1: {
      if ((*((size_t*) (arg0 + (2*sizeof(void*))))) > 0) {
        free(*((uint8_t **) (arg0 + sizeof(void*))));
      }
      if ((*((size_t*) (arg0 + (4*sizeof(void*))))) > 0) {
        free(*((uint8_t **) (arg0 + (3*sizeof(void*)))));
      }
      break;
    }
  }
}

// Canonical ABI intrinsics

__attribute__((__weak__, __export_name__("cabi_realloc")))
void *cabi_realloc(void *ptr, size_t old_size, size_t align, size_t new_size) {
  (void) old_size;
  if (new_size == 0) return (void*) align;
  void *ret = realloc(ptr, new_size);
  if (!ret) abort();
  return ret;
}

__attribute__((__aligned__(sizeof(void*))))
static uint8_t RET_AREA[(5*sizeof(void*))];

// Helper Functions

void skill_tuple2_string_string_free(skill_tuple2_string_string_t *ptr) {
  skill_string_free(&ptr->f0);
  skill_string_free(&ptr->f1);
}

void skill_list_tuple2_string_string_free(skill_list_tuple2_string_string_t *ptr) {
  size_t list_len = ptr->len;
  if (list_len > 0) {
    skill_tuple2_string_string_t *list_ptr = ptr->ptr;
    for (size_t i = 0; i < list_len; i++) {
      skill_tuple2_string_string_free(&list_ptr[i]);
    }
    free(list_ptr);
  }
}

void skill_list_u8_free(skill_list_u8_t *ptr) {
  size_t list_len = ptr->len;
  if (list_len > 0) {
    uint8_t *list_ptr = ptr->ptr;
    for (size_t i = 0; i < list_len; i++) {
    }
    free(list_ptr);
  }
}

void skill_option_u32_free(skill_option_u32_t *ptr) {
  if (ptr->is_some) {
  }
}

void palyra_skill_http_request_free(palyra_skill_http_request_t *ptr) {
  skill_string_free(&ptr->method);
  skill_string_free(&ptr->url);
  skill_list_tuple2_string_string_free(&ptr->headers);
  skill_list_u8_free(&ptr->body);
  skill_option_u32_free(&ptr->timeout_ms);
}

void palyra_skill_http_response_free(palyra_skill_http_response_t *ptr) {
  skill_list_tuple2_string_string_free(&ptr->headers);
  skill_list_u8_free(&ptr->body);
}

void palyra_skill_http_error_free(palyra_skill_http_error_t *ptr) {
  switch ((int32_t) ptr->tag) {
    case 0: {
      skill_string_free(&ptr->val.denied);
      break;
    }
    case 1: {
      skill_string_free(&ptr->val.invalid);
      break;
    }
    case 2: {
      skill_string_free(&ptr->val.unreachable);
      break;
    }
    case 4: {
      break;
    }
  }
}

void palyra_skill_http_result_response_error_free(palyra_skill_http_result_response_error_t *ptr) {
  if (!ptr->is_err) {
    palyra_skill_http_response_free(&ptr->val.ok);
  } else {
    palyra_skill_http_error_free(&ptr->val.err);
  }
}

void palyra_skill_secrets_error_free(palyra_skill_secrets_error_t *ptr) {
  switch ((int32_t) ptr->tag) {
    case 2: {
      skill_string_free(&ptr->val.unavailable);
      break;
    }
  }
}

void palyra_skill_secrets_result_list_u8_error_free(palyra_skill_secrets_result_list_u8_error_t *ptr) {
  if (!ptr->is_err) {
    skill_list_u8_free(&ptr->val.ok);
  } else {
    palyra_skill_secrets_error_free(&ptr->val.err);
  }
}

void palyra_skill_storage_error_free(palyra_skill_storage_error_t *ptr) {
  switch ((int32_t) ptr->tag) {
    case 0: {
      break;
    }
    case 2: {
      skill_string_free(&ptr->val.unavailable);
      break;
    }
  }
}

void skill_option_list_u8_free(skill_option_list_u8_t *ptr) {
  if (ptr->is_some) {
    skill_list_u8_free(&ptr->val);
  }
}

void palyra_skill_storage_result_option_list_u8_error_free(palyra_skill_storage_result_option_list_u8_error_t *ptr) {
  if (!ptr->is_err) {
    skill_option_list_u8_free(&ptr->val.ok);
  } else {
    palyra_skill_storage_error_free(&ptr->val.err);
  }
}

void palyra_skill_storage_result_void_error_free(palyra_skill_storage_result_void_error_t *ptr) {
  if (!ptr->is_err) {
  } else {
    palyra_skill_storage_error_free(&ptr->val.err);
  }
}

void palyra_skill_storage_result_bool_error_free(palyra_skill_storage_result_bool_error_t *ptr) {
  if (!ptr->is_err) {
  } else {
    palyra_skill_storage_error_free(&ptr->val.err);
  }
}

void skill_list_string_free(skill_list_string_t *ptr) {
  size_t list_len = ptr->len;
  if (list_len > 0) {
    skill_string_t *list_ptr = ptr->ptr;
    for (size_t i = 0; i < list_len; i++) {
      skill_string_free(&list_ptr[i]);
    }
    free(list_ptr);
  }
}

void palyra_skill_storage_result_list_string_error_free(palyra_skill_storage_result_list_string_error_t *ptr) {
  if (!ptr->is_err) {
    skill_list_string_free(&ptr->val.ok);
  } else {
    palyra_skill_storage_error_free(&ptr->val.err);
  }
}

void skill_option_string_free(skill_option_string_t *ptr) {
  if (ptr->is_some) {
    skill_string_free(&ptr->val);
  }
}

void exports_palyra_skill_tools_tool_free(exports_palyra_skill_tools_tool_t *ptr) {
  skill_string_free(&ptr->name);
  skill_string_free(&ptr->description);
  skill_string_free(&ptr->input_schema);
  skill_option_string_free(&ptr->output_schema);
}

void exports_palyra_skill_tools_tool_error_free(exports_palyra_skill_tools_tool_error_t *ptr) {
  skill_string_free(&ptr->code);
  skill_string_free(&ptr->message);
}

void exports_palyra_skill_tools_list_tool_free(exports_palyra_skill_tools_list_tool_t *ptr) {
  size_t list_len = ptr->len;
  if (list_len > 0) {
    exports_palyra_skill_tools_tool_t *list_ptr = ptr->ptr;
    for (size_t i = 0; i < list_len; i++) {
      exports_palyra_skill_tools_tool_free(&list_ptr[i]);
    }
    free(list_ptr);
  }
}

void exports_palyra_skill_tools_result_string_tool_error_free(exports_palyra_skill_tools_result_string_tool_error_t *ptr) {
  if (!ptr->is_err) {
    skill_string_free(&ptr->val.ok);
  } else {
    exports_palyra_skill_tools_tool_error_free(&ptr->val.err);
  }
}

void skill_string_set(skill_string_t *ret, const char*s) {
  ret->ptr = (uint8_t*) s;
  ret->len = strlen(s);
}

void skill_string_dup(skill_string_t *ret, const char*s) {
  ret->len = strlen(s);
  ret->ptr = (uint8_t*) cabi_realloc(NULL, 0, 1, ret->len * 1);
  memcpy(ret->ptr, s, ret->len * 1);
}

void skill_string_dup_n(skill_string_t *ret, const char*s, size_t len) {
  ret->len = len;
  ret->ptr = (uint8_t*) cabi_realloc(NULL, 0, 1, ret->len * 1);
  memcpy(ret->ptr, s, ret->len * 1);
}

void skill_string_free(skill_string_t *ret) {
  if (ret->len > 0) {
    free(ret->ptr);
  }
  ret->ptr = NULL;
  ret->len = 0;
}

// Component Adapters

void palyra_skill_log_write(palyra_skill_log_level_t level, skill_string_t *message) {
  __wasm_import_palyra_skill_log_write((int32_t) level, (uint8_t *) (*message).ptr, (*message).len);
}

bool palyra_skill_http_send(palyra_skill_http_request_t *request, palyra_skill_http_response_t *ret, palyra_skill_http_error_t *err) {
  __attribute__((__aligned__(8)))
  uint8_t ret_area[(16+4*sizeof(void*))];
  int32_t option;
  int32_t option1;
  if (((*request).timeout_ms).is_some) {
    const uint32_t *payload0 = &((*request).timeout_ms).val;
    option = 1;
    option1 = (int32_t) (*payload0);
  } else {
    option = 0;
    option1 = 0;
  }
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_http_send((uint8_t *) ((*request).method).ptr, ((*request).method).len, (uint8_t *) ((*request).url).ptr, ((*request).url).len, (uint8_t *) ((*request).headers).ptr, ((*request).headers).len, (uint8_t *) ((*request).body).ptr, ((*request).body).len, option, option1, ptr);
  palyra_skill_http_result_response_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      result.val.ok = (palyra_skill_http_response_t) {
        (uint16_t) (uint16_t) ((int32_t) *((uint16_t*) (ptr + 8))),
        (skill_list_tuple2_string_string_t) (skill_list_tuple2_string_string_t) { (skill_tuple2_string_string_t*)(*((uint8_t **) (ptr + (8+1*sizeof(void*))))), (*((size_t*) (ptr + (8+2*sizeof(void*))))) },
        (skill_list_u8_t) (skill_list_u8_t) { (uint8_t*)(*((uint8_t **) (ptr + (8+3*sizeof(void*))))), (*((size_t*) (ptr + (8+4*sizeof(void*))))) },
      };
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_http_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + 8));
      switch ((int32_t) variant.tag) {
        case 0: {
          variant.val.denied = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
        case 1: {
          variant.val.invalid = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
        case 2: {
          variant.val.unreachable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
        case 3: {
          break;
        }
        case 4: {
          variant.val.too_large = (uint64_t) (*((int64_t*) (ptr + 16)));
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    *ret = result.val.ok;
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

bool palyra_skill_secrets_read(skill_string_t *scope, skill_string_t *key, skill_list_u8_t *ret, palyra_skill_secrets_error_t *err) {
  __attribute__((__aligned__(sizeof(void*))))
  uint8_t ret_area[(4*sizeof(void*))];
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_secrets_read((uint8_t *) (*scope).ptr, (*scope).len, (uint8_t *) (*key).ptr, (*key).len, ptr);
  palyra_skill_secrets_result_list_u8_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      result.val.ok = (skill_list_u8_t) { (uint8_t*)(*((uint8_t **) (ptr + sizeof(void*)))), (*((size_t*) (ptr + (2*sizeof(void*))))) };
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_secrets_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + sizeof(void*)));
      switch ((int32_t) variant.tag) {
        case 0: {
          break;
        }
        case 1: {
          break;
        }
        case 2: {
          variant.val.unavailable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + (2*sizeof(void*))))), (*((size_t*) (ptr + (3*sizeof(void*))))) };
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    *ret = result.val.ok;
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

bool palyra_skill_storage_read(skill_string_t *key, skill_option_list_u8_t *ret, palyra_skill_storage_error_t *err) {
  __attribute__((__aligned__(8)))
  uint8_t ret_area[(16+2*sizeof(void*))];
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_storage_read((uint8_t *) (*key).ptr, (*key).len, ptr);
  palyra_skill_storage_result_option_list_u8_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      skill_option_list_u8_t option;
      switch ((int32_t) *((uint8_t*) (ptr + 8))) {
        case 0: {
          option.is_some = false;
          break;
        }
        case 1: {
          option.is_some = true;
          option.val = (skill_list_u8_t) { (uint8_t*)(*((uint8_t **) (ptr + (8+1*sizeof(void*))))), (*((size_t*) (ptr + (8+2*sizeof(void*))))) };
          break;
        }
      }

      result.val.ok = option;
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_storage_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + 8));
      switch ((int32_t) variant.tag) {
        case 0: {
          variant.val.quota_exceeded = (uint64_t) (*((int64_t*) (ptr + 16)));
          break;
        }
        case 1: {
          break;
        }
        case 2: {
          variant.val.unavailable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    *ret = result.val.ok;
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

bool palyra_skill_storage_write(skill_string_t *key, skill_list_u8_t *value, palyra_skill_storage_error_t *err) {
  __attribute__((__aligned__(8)))
  uint8_t ret_area[(16+2*sizeof(void*))];
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_storage_write((uint8_t *) (*key).ptr, (*key).len, (uint8_t *) (*value).ptr, (*value).len, ptr);
  palyra_skill_storage_result_void_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_storage_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + 8));
      switch ((int32_t) variant.tag) {
        case 0: {
          variant.val.quota_exceeded = (uint64_t) (*((int64_t*) (ptr + 16)));
          break;
        }
        case 1: {
          break;
        }
        case 2: {
          variant.val.unavailable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

bool palyra_skill_storage_delete(skill_string_t *key, bool *ret, palyra_skill_storage_error_t *err) {
  __attribute__((__aligned__(8)))
  uint8_t ret_area[(16+2*sizeof(void*))];
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_storage_delete((uint8_t *) (*key).ptr, (*key).len, ptr);
  palyra_skill_storage_result_bool_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      result.val.ok = (int32_t) *((uint8_t*) (ptr + 8));
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_storage_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + 8));
      switch ((int32_t) variant.tag) {
        case 0: {
          variant.val.quota_exceeded = (uint64_t) (*((int64_t*) (ptr + 16)));
          break;
        }
        case 1: {
          break;
        }
        case 2: {
          variant.val.unavailable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    *ret = result.val.ok;
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

bool palyra_skill_storage_keys(skill_string_t *prefix, skill_list_string_t *ret, palyra_skill_storage_error_t *err) {
  __attribute__((__aligned__(8)))
  uint8_t ret_area[(16+2*sizeof(void*))];
  uint8_t *ptr = (uint8_t *) &ret_area;
  __wasm_import_palyra_skill_storage_keys((uint8_t *) (*prefix).ptr, (*prefix).len, ptr);
  palyra_skill_storage_result_list_string_error_t result;
  switch ((int32_t) *((uint8_t*) (ptr + 0))) {
    case 0: {
      result.is_err = false;
      result.val.ok = (skill_list_string_t) { (skill_string_t*)(*((uint8_t **) (ptr + 8))), (*((size_t*) (ptr + (8+1*sizeof(void*))))) };
      break;
    }
    case 1: {
      result.is_err = true;
      palyra_skill_storage_error_t variant;
      variant.tag = (int32_t) *((uint8_t*) (ptr + 8));
      switch ((int32_t) variant.tag) {
        case 0: {
          variant.val.quota_exceeded = (uint64_t) (*((int64_t*) (ptr + 16)));
          break;
        }
        case 1: {
          break;
        }
        case 2: {
          variant.val.unavailable = (skill_string_t) { (uint8_t*)(*((uint8_t **) (ptr + 16))), (*((size_t*) (ptr + (16+1*sizeof(void*))))) };
          break;
        }
      }

      result.val.err = variant;
      break;
    }
  }
  if (!result.is_err) {
    *ret = result.val.ok;
    return 1;
  } else {
    *err = result.val.err;
    return 0;
  }
}

__attribute__((__export_name__("palyra:skill/tools@1.0.0#describe")))
uint8_t * __wasm_export_exports_palyra_skill_tools_describe(void) {
  exports_palyra_skill_tools_list_tool_t ret;
  exports_palyra_skill_tools_describe(&ret);
  uint8_t *ptr = (uint8_t *) &RET_AREA;
  *((size_t*)(ptr + sizeof(void*))) = (ret).len;
  *((uint8_t **)(ptr + 0)) = (uint8_t *) (ret).ptr;
  return ptr;
}

__attribute__((__export_name__("palyra:skill/tools@1.0.0#invoke")))
uint8_t * __wasm_export_exports_palyra_skill_tools_invoke(uint8_t * arg, size_t arg0, uint8_t * arg1, size_t arg2) {
  skill_string_t arg3 = (skill_string_t) { (uint8_t*)(arg), (arg0) };
  skill_string_t arg4 = (skill_string_t) { (uint8_t*)(arg1), (arg2) };
  exports_palyra_skill_tools_result_string_tool_error_t ret;
  skill_string_t ok;
  exports_palyra_skill_tools_tool_error_t err;
  ret.is_err = !exports_palyra_skill_tools_invoke(&arg3, &arg4, &ok, &err);
  if (ret.is_err) {
    ret.val.err = err;
  }
  if (!ret.is_err) {
    ret.val.ok = ok;
  }
  uint8_t *ptr = (uint8_t *) &RET_AREA;
  if ((ret).is_err) {
    const exports_palyra_skill_tools_tool_error_t *payload5 = &(ret).val.err;*((int8_t*)(ptr + 0)) = 1;
    *((size_t*)(ptr + (2*sizeof(void*)))) = ((*payload5).code).len;
    *((uint8_t **)(ptr + sizeof(void*))) = (uint8_t *) ((*payload5).code).ptr;
    *((size_t*)(ptr + (4*sizeof(void*)))) = ((*payload5).message).len;
    *((uint8_t **)(ptr + (3*sizeof(void*)))) = (uint8_t *) ((*payload5).message).ptr;
  } else {
    const skill_string_t *payload = &(ret).val.ok;*((int8_t*)(ptr + 0)) = 0;
    *((size_t*)(ptr + (2*sizeof(void*)))) = (*payload).len;
    *((uint8_t **)(ptr + sizeof(void*))) = (uint8_t *) (*payload).ptr;
  }
  return ptr;
}
