//! A small assembler for the kernel's packet-filter machine (eBPF, RFC 9669): the few instructions that a filter of
//! headers needs, with labels. It writes instructions down; what they mean for packets is `program.rs`.

/// A register. `R0` is the result, `R1` to `R5` are arguments and lost in a call, `R6` to `R9` are kept, `FP` is the
/// end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    Fp,
}

/// Bytes of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// When a jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum When {
    Equal = 0x10,
    Above = 0x20,
    Different = 0x50,
    Below = 0xa0,
}

/// One instruction as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    /// Destination in the low half, source in the high one.
    pub(crate) regs: u8,
    pub(crate) off: i16,
    pub(crate) imm: i32,
}

const _: () = assert!(size_of::<Insn>() == 8);

// Instruction classes and modifiers.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const MEM: u8 = 0x60;
const DOUBLE: u8 = 0x18;
/// The operand is a register, not a constant.
const BY_REG: u8 = 0x08;
const ADD: u8 = 0x00;
const AND: u8 = 0x50;
const MOVE: u8 = 0xb0;
const END: u8 = 0xd0;
/// Of a change of byte order: to or from big-endian, which is the same.
const TO_BIG: u8 = 0x08;
const ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// Source "register" of a load of 64 bits that says: the constant is a map's descriptor.
const MAP_FD: u8 = 1;

/// A place to jump to; bound once, used any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program being written.
#[derive(Default)]
pub(crate) struct Assembler {
    insns: Vec<Insn>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// Jumps to be filled in: which instruction, to which label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label that has no place yet.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Here is what jumps to the label lead to.
    pub(crate) fn bind(&mut self, label: Label) {
        let place = &mut self.places[label.0];
        debug_assert!(place.is_none(), "a label has one place");
        *place = Some(self.insns.len());
    }

    /// Whether something jumps there so far. The kernel refuses instructions that nothing leads to.
    pub(crate) fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|&(_, to)| to == label)
    }

    /// `dst = src`
    pub(crate) fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | MOVE | BY_REG, dst as u8 | (src as u8) << 4, 0, 0);
    }

    /// `dst = imm`
    pub(crate) fn set(&mut self, dst: Reg, imm: i32) {
        self.push(ALU64 | MOVE, dst as u8, 0, imm);
    }

    /// `dst += imm`
    pub(crate) fn add(&mut self, dst: Reg, imm: i32) {
        self.push(ALU64 | ADD, dst as u8, 0, imm);
    }

    /// `dst &= imm`
    pub(crate) fn and(&mut self, dst: Reg, imm: i32) {
        self.push(ALU64 | AND, dst as u8, 0, imm);
    }

    /// The low 16 bits of `dst` from the network's byte order to the machine's, the rest zero
    pub(crate) fn swap_16_if_little(&mut self, dst: Reg) {
        self.push(ALU | END | TO_BIG, dst as u8, 0, 16);
    }

    /// `dst = *(src + off)`, the rest of `dst` zero
    pub(crate) fn load(&mut self, size: Size, dst: Reg, src: Reg, off: i16) {
        self.push(LDX | MEM | size as u8, dst as u8 | (src as u8) << 4, off, 0);
    }

    /// `*(dst + off) = src`
    pub(crate) fn store(&mut self, size: Size, dst: Reg, off: i16, src: Reg) {
        self.push(STX | MEM | size as u8, dst as u8 | (src as u8) << 4, off, 0);
    }

    /// `*(dst + off) = imm`
    pub(crate) fn store_imm(&mut self, size: Size, dst: Reg, off: i16, imm: i32) {
        self.push(ST | MEM | size as u8, dst as u8, off, imm);
    }

    /// `dst = the map behind this descriptor`
    pub(crate) fn load_map(&mut self, dst: Reg, fd: i32) {
        self.push(LD | DOUBLE, dst as u8 | MAP_FD << 4, 0, fd);
        self.push(0, 0, 0, 0);
    }

    /// Goes on at `to`.
    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(JMP | ALWAYS, 0, 0, 0);
    }

    /// Goes on at `to` when the low 32 bits of `reg` compare with `imm` as said, unsigned.
    pub(crate) fn jump_if(&mut self, reg: Reg, when: When, imm: u32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(JMP32 | when as u8, reg as u8, 0, imm as i32);
    }

    /// Goes on at `to` when `left` compares with `right` as said, all 64 bits of them.
    pub(crate) fn jump_if_reg(&mut self, left: Reg, when: When, right: Reg, to: Label) {
        self.jumps.push((self.insns.len(), to));
        let regs = left as u8 | (right as u8) << 4;
        self.push(JMP | when as u8 | BY_REG, regs, 0, 0);
    }

    /// Goes on at `to` when `reg`, which may be a pointer, is not zero.
    pub(crate) fn jump_if_some(&mut self, reg: Reg, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(JMP | When::Different as u8, reg as u8, 0, 0);
    }

    /// Calls one of the kernel's helpers.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(JMP | CALL, 0, 0, helper);
    }

    /// Ends the program; its answer is in `R0`.
    pub(crate) fn exit(&mut self) {
        self.push(JMP | EXIT, 0, 0, 0);
    }

    /// The finished program.
    ///
    /// # Panics
    /// When a label was used and never bound, or lies further than a jump reaches: both are mistakes of who assembles.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("every label that is used has a place");
            // Counted from the next instruction.
            let distance = place as i64 - at as i64 - 1;
            self.insns[at].off = i16::try_from(distance).expect("a jump within reach");
        }
        self.insns
    }

    fn push(&mut self, code: u8, regs: u8, off: i16, imm: i32) {
        self.insns.push(Insn {
            code,
            regs,
            off,
            imm,
        });
    }
}

#[cfg(test)]
mod tests;
