//! The sample as it is deployed: the local cloud, its functions as processes, and the template.

mod browser;
mod entrances;
mod local_cloud_output;
mod local_cloud_works;
mod main_job;
mod own_changes;
mod own_functions;
mod own_templates;
mod page;
mod page_overview;
mod page_tenants;
mod payments_routes;
mod reports_routes;
mod rest;
mod start_up;
mod table_alone;
mod template;
