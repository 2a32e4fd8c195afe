//! Interfaces that are always denied, answered from their types alone.
//!
//! Toolchains import sockets whether or not a program uses them, so these imports must exist. There is no code for any
//! of them: whatever a function promises to return, it returns the denial that fits its type, or it stops the guest.

use crate::error::Stop;
use crate::guest::{Guest, HostCallKind};
use wasmtime::StoreContextMut;
use wasmtime::component::types::{ComponentItem, Type};
use wasmtime::component::{Component, Linker, Resource, ResourceAny, ResourceType, Val};

/// Interfaces that are denied: everything of `wasi:sockets`.
pub(crate) const DENIED: &str = "wasi:sockets/";

/// Resources that these interfaces take from others, where they are defined.
const BORROWED: [&str; 4] = ["pollable", "input-stream", "output-stream", "error"];

/// What a denied interface hands out where its type leaves no other choice: something that every function denies.
#[derive(Debug)]
struct Dead;

/// Defines every denied interface that the component imports.
pub(crate) fn link(linker: &mut Linker<Guest>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    let ty = component.component_type();
    for (name, import) in ty.imports(&engine) {
        let ComponentItem::ComponentInstance(interface) = import.ty else { continue };
        if !name.starts_with(DENIED) {
            continue;
        }
        let mut instance = linker.instance(name)?;
        for (item, export) in interface.exports(&engine) {
            match export.ty {
                ComponentItem::ComponentFunc(_) => {
                    instance.func_new(item, |store, ty, _, results| {
                        let types: Vec<Type> = ty.results().collect();
                        deny(store, &types, results)
                    })?;
                }
                ComponentItem::Resource(_) if !BORROWED.contains(&item) => {
                    instance.resource(item, ResourceType::host::<Dead>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn deny(mut store: StoreContextMut<'_, Guest>, types: &[Type], results: &mut [Val]) -> wasmtime::Result<()> {
    let guest = store.data_mut();
    guest.count(HostCallKind::Denied)?;
    guest.observed.denied("wasi", "sockets");
    for (ty, result) in types.iter().zip(results) {
        *result = match denial(ty) {
            Some(value) => value,
            None if matches!(ty, Type::Own(_)) => {
                Val::Resource(ResourceAny::try_from_resource(Resource::<Dead>::new_own(0), &mut store)?)
            }
            None => return Err(Stop::Misuse("sockets do not exist here").into()),
        };
    }
    Ok(())
}

/// The value of this type that says no.
fn denial(ty: &Type) -> Option<Val> {
    match ty {
        Type::Result(result) => match result.err() {
            Some(Type::Enum(codes)) => {
                let code = codes.names().find(|name| matches!(*name, "access-denied" | "access"))?.to_owned();
                Some(Val::Result(Err(Some(Box::new(Val::Enum(code))))))
            }
            None => Some(Val::Result(Err(None))),
            Some(_) => None,
        },
        Type::Option(_) => Some(Val::Option(None)),
        Type::List(_) => Some(Val::List(Vec::new())),
        Type::Bool => Some(Val::Bool(false)),
        _ => None,
    }
}
