;; Says that its output is everything that it has in memory. Stopped by `output_bytes` before the host copies it.
(module
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 8192))

  ;; The host allocates here what it hands over: strings of the input, results of host calls.
  (func $realloc (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at
      (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
      (drop (memory.grow (i32.add (i32.div_u (local.get $size) (i32.const 65536)) (i32.const 1)))))
    (local.get $at))

  ;; One tool: name at 16, description at 32, schema at 160; the list at 256.
  (data (i32.const 16) "run")
  (data (i32.const 32) "Returns more than anybody wants.")
  (data (i32.const 160) "{\22type\22:\22object\22}")
  (func (export "palyra:skill/tools@1.0.0#describe") (result i32)
    (i32.store (i32.const 200) (i32.const 256))
    (i32.store (i32.const 204) (i32.const 1))
    (i32.store (i32.const 256) (i32.const 16))
    (i32.store (i32.const 260) (i32.const 3))
    (i32.store (i32.const 264) (i32.const 32))
    (i32.store (i32.const 268) (i32.const 32))
    (i32.store (i32.const 272) (i32.const 160))
    (i32.store (i32.const 276) (i32.const 17))
    (i32.store (i32.const 280) (i32.const 0))
    (i32.const 200))

  ;; The answer: an output at this place of this length.
  (func $answer (param $at i32) (param $length i32) (result i32)
    (i32.store (i32.const 208) (i32.const 0))
    (i32.store (i32.const 212) (local.get $at))
    (i32.store (i32.const 216) (local.get $length))
    (i32.const 208))

  (func (export "palyra:skill/tools@1.0.0#invoke") (param $tool i32) (param $tool_length i32) (param $input i32) (param $input_length i32) (result i32)
    (drop (memory.grow (i32.const 1024)))
    (memory.fill (i32.const 8192) (i32.const 0x20) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 8192)))
    (call $answer (i32.const 8192) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 8192)))))
