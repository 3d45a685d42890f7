//! The types that expressions have before they have values.

use std::fmt::{self, Display};

use crate::schema::format::Format;
use crate::schema::{Schema, Type};

/// The type of an expression, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) enum Ty<'s> {
    /// Known only when the expression is evaluated.
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Null,
    Duration,
    Timestamp,
    Type,
    Quantity,
    Url,
    Ip,
    Cidr,
    List(Box<Ty<'s>>),
    Map(Box<Ty<'s>>, Box<Ty<'s>>),
    Optional(Box<Ty<'s>>),
    /// An object with named fields; `true` for a whole object.
    Object(&'s Schema, bool),
    /// The part of an object's metadata that rules may see.
    Meta,
}

impl<'s> Ty<'s> {
    /// The type of what a schema describes; absent where rules cannot see it.
    pub fn of(schema: &'s Schema, root: bool) -> Option<Ty<'s>> {
        Some(match schema.ty {
            Type::IntOrString => Ty::Dyn,
            Type::Boolean => Ty::Bool,
            Type::Integer => Ty::Int,
            Type::Number => Ty::Double,
            Type::Array => Ty::List(Box::new(Ty::of(schema.items.as_ref()?, false)?)),
            Type::Object => match schema.additional.as_ref().filter(|s| !s.is_open()) {
                Some(value) => Ty::Map(Box::new(Ty::Str), Box::new(Ty::of(value, false)?)),
                None => Ty::Object(schema, root || schema.embedded_resource),
            },
            Type::String => match (schema.checks.format, schema.checks.format_name.as_deref()) {
                (Some(Format::Byte), Some("byte")) => Ty::Bytes,
                (Some(Format::Duration), Some("duration")) => Ty::Duration,
                (Some(Format::Date), Some("date")) | (Some(Format::DateTime), Some("date-time")) => Ty::Timestamp,
                _ => Ty::Str,
            },
            Type::Any => return None,
        })
    }

    /// The type of a field; absent where there is none of that name.
    pub fn field(&self, identifier: &str) -> Option<Ty<'s>> {
        match self {
            Ty::Dyn => Some(Ty::Dyn),
            Ty::Map(_, value) => Some((**value).clone()),
            Ty::Object(schema, whole) => {
                let name = super::names::unescape(identifier);
                match name.as_ref() {
                    "apiVersion" | "kind" if *whole => Some(Ty::Str),
                    "metadata" if *whole => Some(Ty::Meta),
                    name => {
                        let field = schema.properties.get(name)?;
                        // A name that has to be escaped is not there under its plain form.
                        let visible = super::names::escape(name)? == identifier;
                        if visible { Ty::of(field, false) } else { None }
                    }
                }
            }
            Ty::Meta => matches!(identifier, "name" | "generateName").then_some(Ty::Str),
            Ty::Optional(inner) => inner.field(identifier).map(|ty| Ty::Optional(Box::new(ty))),
            _ => None,
        }
    }

    /// Whether fields can be selected at all.
    pub fn has_fields(&self) -> bool {
        match self {
            Ty::Dyn | Ty::Map(..) | Ty::Object(..) | Ty::Meta => true,
            Ty::Optional(inner) => inner.has_fields(),
            _ => false,
        }
    }

    /// Whether a value of one type may be where the other is wanted.
    pub fn fits(&self, other: &Ty<'_>) -> bool {
        match (self, other) {
            (Ty::Dyn, _) | (_, Ty::Dyn) => true,
            (Ty::List(a), Ty::List(b)) | (Ty::Optional(a), Ty::Optional(b)) => a.fits(b),
            (Ty::Map(k, v), Ty::Map(l, w)) => k.fits(l) && v.fits(w),
            // Objects are told apart by their schemas only on a cluster; one is as good as another here.
            (Ty::Object(..) | Ty::Meta, Ty::Object(..) | Ty::Meta | Ty::Null) => true,
            (Ty::Null, Ty::Object(..) | Ty::Meta | Ty::Duration | Ty::Timestamp | Ty::Optional(_)) => true,
            (Ty::Duration | Ty::Timestamp | Ty::Optional(_), Ty::Null) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl Schema {
    /// `additionalProperties: true`: anything goes, and nothing is known about it.
    fn is_open(&self) -> bool {
        self.ty == Type::Any && !self.preserve_unknown
    }
}

impl Display for Ty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ty::Dyn => "dyn",
            Ty::Bool => "bool",
            Ty::Int => "int",
            Ty::Uint => "uint",
            Ty::Double => "double",
            Ty::Str => "string",
            Ty::Bytes => "bytes",
            Ty::Null => "null",
            Ty::Duration => "google.protobuf.Duration",
            Ty::Timestamp => "google.protobuf.Timestamp",
            Ty::Type => "type",
            Ty::Quantity => "kubernetes.Quantity",
            Ty::Url => "kubernetes.URL",
            Ty::Ip => "net.IP",
            Ty::Cidr => "net.CIDR",
            Ty::Object(..) | Ty::Meta => "object",
            Ty::List(item) => return write!(f, "list({item})"),
            Ty::Map(key, value) => return write!(f, "map({key}, {value})"),
            Ty::Optional(inner) => return write!(f, "optional_type({inner})"),
        })
    }
}
